//! The documents of DDS Security: the governance of a domain, and the permissions of a node. Both
//! are XML that the authority signs as S/MIME.

use std::path::Path;

#[cfg(feature = "dds-security")]
use {
    super::files,
    crate::outcome::Misuse,
    anyhow::Context as _,
    openssl::{
        pkcs7::{Pkcs7, Pkcs7Flags},
        stack::Stack,
        x509::{X509, store::X509StoreBuilder},
    },
    polywire::{Config, engine::dds::Naming},
};

/// The governance: members of the fleet may join, and everything is encrypted. Whole packets are
/// encrypted for the members of the fleet, and within them each topic's messages for its permitted
/// readers. Cyclone rejects domains above 230.
#[cfg(feature = "dds-security")]
const GOVERNANCE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="https://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_governance.xsd">
  <domain_access_rules>
    <domain_rule>
      <domains><id_range><min>0</min><max>230</max></id_range></domains>
      <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
      <enable_join_access_control>true</enable_join_access_control>
      <discovery_protection_kind>ENCRYPT</discovery_protection_kind>
      <liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>
      <rtps_protection_kind>ENCRYPT</rtps_protection_kind>
      <topic_access_rules>
        <topic_rule>
          <topic_expression>*</topic_expression>
          <enable_discovery_protection>true</enable_discovery_protection>
          <enable_liveliness_protection>true</enable_liveliness_protection>
          <enable_read_access_control>true</enable_read_access_control>
          <enable_write_access_control>true</enable_write_access_control>
          <metadata_protection_kind>ENCRYPT</metadata_protection_kind>
          <data_protection_kind>NONE</data_protection_kind>
        </topic_rule>
      </topic_access_rules>
    </domain_rule>
  </domain_access_rules>
</dds>
"#;

/// The permissions of a node without access rules: read and write every topic of every domain.
#[cfg(feature = "dds-security")]
const EVERYTHING: &str = r#"      <allow_rule>
        <domains><id_range><min>0</min><max>230</max></id_range></domains>
        <publish><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></publish>
        <subscribe><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></subscribe>
      </allow_rule>
"#;

/// The signed documents.
pub struct Documents {
    pub governance: String,
    pub permissions: String,
}

/// How topics are named in DDS, as the address of the nodes says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Names {
    /// As in Polywire
    #[default]
    Plain,
    /// As in ROS 2, with ros=true in the address
    Ros,
    /// As in Polywire, but services as in DDS-RPC, with rpc=true in the address
    Rpc,
}

/// The permissions of a node.
#[cfg_attr(not(feature = "dds-security"), expect(dead_code, reason = "only documents need it"))]
pub enum Permissions<'a> {
    Everything,
    /// The permissions in a document that was signed before.
    SignedDocument(&'a Path),
    /// The permissions of the section `[access]` of a configuration.
    AccessRules(&'a Path, Names),
}

/// The subject of documents: the name of a node, and the validity of its certificate, as two times
/// since 1970.
#[cfg_attr(not(feature = "dds-security"), expect(dead_code, reason = "only documents need it"))]
pub struct Holder<'a> {
    pub name: &'a str,
    pub valid: (i64, i64),
}

/// Makes the documents of a node, with the same validity as its certificate. The authority's
/// certificate and key are PEM.
#[cfg(feature = "dds-security")]
pub fn documents(of: &Holder<'_>, granted: &Permissions<'_>, authority: &str, key: &str) -> anyhow::Result<Documents> {
    let (authority, key) = (X509::from_pem(authority.as_bytes())?, key.as_bytes());
    let key = openssl::pkey::PKey::private_key_from_pem(key)?;
    let rules = match granted {
        Permissions::Everything => EVERYTHING.to_owned(),
        Permissions::SignedDocument(document) => rules_of(document, &authority)?,
        Permissions::AccessRules(file, names) => rules_by(file, of.name, *names)?,
    };
    let sign = |document: &str| -> anyhow::Result<String> {
        let (document, flags) = (document.as_bytes(), Pkcs7Flags::TEXT | Pkcs7Flags::DETACHED);
        let signed = Pkcs7::sign(&authority, &key, &*Stack::new()?, document, flags)?;
        Ok(String::from_utf8(signed.to_smime(document, flags)?)?)
    };
    Ok(Documents { governance: sign(GOVERNANCE)?, permissions: sign(&permissions(of, &rules))? })
}

#[cfg(not(feature = "dds-security"))]
pub fn documents(_: &Holder<'_>, _: &Permissions<'_>, _: &str, _: &str) -> anyhow::Result<Documents> {
    anyhow::bail!("this program was built without DDS Security: build it with the feature 'dds-security'")
}

/// Returns the permissions of the access rules in a configuration.
#[cfg(feature = "dds-security")]
fn rules_by(file: &Path, name: &str, names: Names) -> anyhow::Result<String> {
    let naming = match names {
        Names::Plain => Naming::Plain,
        Names::Ros => Naming::Ros,
        Names::Rpc => Naming::Rpc,
    };
    let access = Config::read(file)?.access;
    let access = access.ok_or_else(|| Misuse(format!("{}: it has no section [access]", file.display())))?;
    Ok(polywire::access::permissions(&access, name, naming)
        .map_err(|error| Misuse(format!("{}: {error}", file.display())))?)
}

/// Returns the permissions in a document that the authority has signed.
#[cfg(feature = "dds-security")]
fn rules_of(file: &Path, authority: &X509) -> anyhow::Result<String> {
    let verified = || -> anyhow::Result<String> {
        let (document, content) = Pkcs7::from_smime(files::text(file)?.as_bytes())?;
        let mut signers = Stack::new()?;
        signers.push(authority.clone())?;
        let flags = Pkcs7Flags::TEXT | Pkcs7Flags::NOVERIFY | Pkcs7Flags::NOINTERN;
        let (nobody, mut text) = (X509StoreBuilder::new()?.build(), Vec::new());
        document.verify(&signers, &nobody, content.as_deref(), Some(&mut text), flags)?;
        // Signed texts have the line ends of mails.
        Ok(String::from_utf8(text)?.replace('\r', ""))
    };
    let text = verified().with_context(|| format!("{}: was not signed by this authority", file.display()))?;
    // There must be one grant, as in the documents that this program makes.
    let rules = || text.split_once("</validity>")?.1.split_once("<default>DENY</default>").map(|(rules, _)| rules);
    let rules = rules().filter(|_| text.matches("<grant").count() == 1);
    let rules = rules.with_context(|| format!("{}: has other rules than this program makes", file.display()))?;
    Ok(format!("{}\n", rules.trim_matches('\n').trim_end()))
}

#[cfg(feature = "dds-security")]
fn permissions(Holder { name, valid }: &Holder<'_>, rules: &str) -> String {
    let [from, until] = [valid.0, valid.1].map(|seconds| {
        let since = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let time = rcgen::date_time_ymd(1970, 1, 1) + since;
        let (year, month, day) = time.to_calendar_date();
        let (hour, minute, second) = time.to_hms();
        format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
    });
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="https://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_permissions.xsd">
  <permissions>
    <grant name="{name}">
      <subject_name>CN={name}</subject_name>
      <validity><not_before>{from}</not_before><not_after>{until}</not_after></validity>
{rules}      <default>DENY</default>
    </grant>
  </permissions>
</dds>
"#
    )
}
