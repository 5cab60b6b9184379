//! Certificates for tests: a small authority, and identities that it signs. Tests of the crate and
//! unit tests include this file.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// An authority, with a folder of its own that is removed in the end.
pub struct Fleet {
    pub folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// The files of an identity.
#[derive(Clone, Debug)]
pub struct Member {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

impl Fleet {
    /// A new authority. All have the same name, so that keys alone tell them apart.
    pub fn new() -> Fleet {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("polywire-fleet-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test fleet");
        params.key_usages.extend([KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign]);
        let key = KeyPair::generate().expect("a key");
        write_key(&folder.join("authority.key"), &key.serialize_pem());
        fs::write(folder.join("authority.pem"), params.self_signed(&key).expect("a certificate").pem())
            .expect("written");
        Fleet { folder, issuer: Issuer::new(params, key) }
    }

    /// Signs for these names and addresses, the first of which is who it is, and writes the files
    /// to a folder of that name.
    pub fn member(&self, names: &[&str]) -> Member {
        self.member_with(names, |_| {})
    }

    /// As [`Fleet::member`], with something out of the ordinary.
    pub fn member_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Member {
        let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let params = params.as_mut().expect("names");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let folder = self.folder.join(names.first().copied().unwrap_or("nameless"));
        fs::create_dir_all(&folder).expect("a folder");
        let member = Member {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
            authority: self.folder.join("authority.pem"),
        };
        fs::write(&member.certificate, certificate.pem()).expect("written");
        write_key(&member.key, &key.serialize_pem());
        member
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn write_key(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the owner's");
}
