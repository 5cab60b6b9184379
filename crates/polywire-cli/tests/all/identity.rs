//! `polywire identity`: file modes, what is not overwritten, and what is said about wrong files.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use crate::common::Folder;

#[test]
fn keys_are_their_owners_and_nothing_is_overwritten() {
    let folder = Folder::new();
    let mode = |file: &str| folder.path().join(file).metadata().expect("a file").permissions().mode() & 0o777;
    folder.run(&["identity", "new", "fleet"]).with(0);
    folder.run(&["identity", "sign", "pump", "--authority", "fleet"]).with(0);
    assert_eq!([mode("fleet/authority.key"), mode("pump/key.pem")], [0o600; 2]);
    let files = ["fleet/authority.key", "fleet/authority.pem", "pump/key.pem", "pump/certificate.pem"];
    let before = files.map(|file| folder.read(file));
    for again in [&["identity", "new", "fleet"][..], &["identity", "sign", "pump", "--authority", "fleet"]] {
        let refused = folder.run(again).with(2);
        assert!(refused.errors.contains("is not overwritten"), "{}", refused.errors);
    }
    assert_eq!(files.map(|file| folder.read(file)), before);

    folder.run(&["identity", "sign", "pump", "--authority", "fleet", "--renew", "--host", "10.0.0.1"]).with(0);
    assert_eq!(folder.read("pump/key.pem"), before[2], "the key stays");
    assert_ne!(folder.read("pump/certificate.pem"), before[3]);
    let shown = folder.run(&["identity", "show", "pump/certificate.pem", "--json"]).with(0).json();
    assert_eq!(shown["hosts"], serde_json::json!(["pump", "10.0.0.1"]));
    let other = folder.run(&["identity", "sign", "hall", "--to", "pump", "--authority", "fleet", "--renew"]).with(3);
    assert!(other.errors.contains("is of 'pump', not 'hall'"), "{}", other.errors);
}

#[test]
fn wrong_files_are_told() {
    let folder = Folder::new();
    folder.run(&["identity", "new", "fleet"]).with(0);
    folder.run(&["identity", "new", "other"]).with(0);
    folder.run(&["identity", "sign", "pump", "--authority", "fleet"]).with(0);
    let show = || folder.run(&["identity", "show", "pump/certificate.pem"]).with(1).out;
    let key = folder.path().join("pump/key.pem");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("permitted");
    assert!(show().contains("chmod 600 pump/key.pem"));
    fs::copy(folder.path().join("other/authority.key"), &key).expect("copied");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("permitted");
    assert!(show().contains("pump/key.pem is not its key"));

    fs::copy(folder.path().join("other/authority.key"), folder.path().join("fleet/authority.key")).expect("copied");
    let mixed = folder.run(&["identity", "sign", "hall", "--authority", "fleet"]).with(2);
    assert!(mixed.errors.contains("is not its key"), "{}", mixed.errors);
    assert!(!folder.path().join("hall").exists(), "nothing is left behind");
    folder.run(&["identity", "sign", "../hall", "--authority", "fleet"]).with(3);
    folder.write("garbage.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let garbage = folder.run(&["identity", "show", "garbage.pem"]).with(2);
    assert!(garbage.errors.contains("garbage.pem: is no X.509 certificate"), "{}", garbage.errors);
}

#[test]
fn documents_of_dds_are_renewed_with_the_certificate() {
    let folder = Folder::new();
    folder.run(&["identity", "new", "fleet"]).with(0);
    let sign =
        |more: &[&str]| folder.run(&[&["identity", "sign", "pump", "--authority", "fleet", "--json"], more].concat());
    if !cfg!(feature = "dds-security") {
        let refused = sign(&["--dds"]).with(2);
        assert!(refused.errors.contains("with the feature 'dds-security'"), "{}", refused.errors);
        assert!(!folder.path().join("pump").exists(), "nothing is left behind");
        return;
    }
    let made = sign(&["--dds"]).with(0).json();
    assert_eq!(
        (&made["governance"], &made["permissions"]),
        (&"pump/governance.p7s".into(), &"pump/permissions.p7s".into())
    );
    let files = ["pump/governance.p7s", "pump/permissions.p7s"];
    let before = files.map(|file| folder.read(file));
    assert!(before[0].contains("<allow_unauthenticated_participants>false<"), "{}", before[0]);
    assert!(before[1].contains("<subject_name>CN=pump</subject_name>"), "{}", before[1]);
    sign(&["--renew", "--days", "30"]).with(0);
    let until = |text: &str| text.split("<not_after>").nth(1).map(|rest| rest[..10].to_owned());
    let after = folder.read(files[1]);
    assert!(until(&after).is_some() && until(&after) < until(&before[1]), "{after}");
    let shown = folder.run(&["identity", "show", "pump/certificate.pem", "--json"]).with(0).json();
    assert_eq!(shown["until"].as_str().map(str::to_owned), until(&after));

    // Without documents before, and without asking, there are none.
    folder.run(&["identity", "sign", "hall", "--authority", "fleet"]).with(0);
    folder.run(&["identity", "sign", "hall", "--authority", "fleet", "--renew"]).with(0);
    assert!(!folder.path().join("hall/permissions.p7s").exists());
}

#[test]
#[cfg(feature = "dds-security")]
fn permissions_follow_the_rules_of_access() {
    let folder = Folder::new();
    folder.run(&["identity", "new", "fleet"]).with(0);
    folder.write("rules.toml", "[[access.allow]]\ncertificates = ['pump*']\npublish = ['plant/*']");
    folder.write("rates.toml", "[[access.allow]]\nanyone = true\nsubscribe = ['a']\nbytes_per_second = 9");
    folder.write("strange.toml", "[[access.allow]]\nanyone = true\nsubscribe = ['a/*/b/**']");
    folder.write("none.toml", "");
    let sign = |more: &[&str]| folder.run(&[&["identity", "sign", "--authority", "fleet"], more].concat());
    let permit = |file: &str, folders: &[&str]| {
        folder.run(&[&["identity", "permit", "--authority", "fleet", "--access", file], folders].concat())
    };
    let permissions = |of: &str| folder.read(&format!("{of}/permissions.p7s"));
    sign(&["pump", "--dds", "--access", "rules.toml"]).with(0);
    let allowed = |text: &str| {
        let rules = text.split_once("</validity>").and_then(|(_, rest)| rest.split_once("<default>DENY</default>"));
        rules.map(|(rules, _)| rules.to_owned()).expect("rules")
    };
    let before = allowed(&permissions("pump"));
    assert!(before.contains("<topic>plant/*</topic>") && !before.contains("<topic>*</topic>"), "{before}");
    sign(&["pump", "--renew", "--days", "30"]).with(0);
    assert_eq!(allowed(&permissions("pump")), before, "what it may do stays");

    sign(&["hall"]).with(0);
    let refused = permit("rules.toml", &["pump", "hall"]).with(3);
    assert!(refused.errors.contains("no rule of access is for 'hall'"), "{}", refused.errors);
    assert!(!folder.path().join("hall/permissions.p7s").exists(), "all or none");
    let refused = permit("strange.toml", &["hall"]).with(3);
    assert!(refused.errors.contains("'a/*/b/**' cannot be told to DDS"), "{}", refused.errors);
    let refused = permit("none.toml", &["hall"]).with(3);
    assert!(refused.errors.contains("no section [access]"), "{}", refused.errors);
    let warned = permit("rates.toml", &["pump", "hall"]).with(0);
    assert!(warned.errors.contains("DDS does not keep to bytes_per_second"), "{}", warned.errors);
    assert!(allowed(&permissions("hall")).contains("<topic>a</topic>"));
    assert_ne!(allowed(&permissions("pump")), before);

    // What somebody else wrote is not signed.
    let forged = permissions("pump").replace("<topic>a</topic>", "<topic>*</topic>");
    folder.write("pump/permissions.p7s", &forged);
    let refused = sign(&["pump", "--renew"]).with(2);
    assert!(refused.errors.contains("was not signed by this authority"), "{}", refused.errors);
}
