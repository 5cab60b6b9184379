//! The files of identities. Writing never overwrites a file, and keys are readable by their owner
//! only. Reading is for `show` and `sign --renew`.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rcgen::{KeyPair, PublicKeyData as _};
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, pem::Pem, prelude::FromDer as _, time::ASN1Time,
};

/// The contents of a certificate.
pub struct CertificateInfo {
    /// The names and addresses of the certificate, the node's own name first.
    pub hosts: Vec<String>,
    pub is_authority: bool,
    pub issuer: String,
    /// The dates of the validity.
    pub from: String,
    pub until: String,
    pub common_name: String,
    /// The times of the validity, since 1970.
    pub valid: (i64, i64),
    public_key: Vec<u8>,
}

impl CertificateInfo {
    /// Reads the first certificate of a file.
    pub fn read(path: &Path) -> anyhow::Result<CertificateInfo> {
        let text = text(path)?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes())
            .map_err(|_| anyhow::anyhow!("{}: is no certificate in PEM", path.display()))?;
        CertificateInfo::parse(&pem).with_context(|| path.display().to_string())
    }

    fn parse(pem: &Pem) -> anyhow::Result<CertificateInfo> {
        let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else { bail!("is no X.509 certificate") };
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let common = |name: &x509_parser::x509::X509Name| {
            let found = name.iter_common_name().find_map(|name| name.as_str().ok().map(str::to_owned));
            found.unwrap_or_else(|| name.to_string())
        };
        let valid = certificate.validity();
        Ok(CertificateInfo {
            hosts: names.iter().filter_map(host).collect(),
            is_authority: certificate.is_ca(),
            issuer: common(certificate.issuer()),
            from: date(valid.not_before),
            until: date(valid.not_after),
            common_name: common(certificate.subject()),
            valid: (valid.not_before.timestamp(), valid.not_after.timestamp()),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }

    /// Returns the name of the holder: the first DNS name, as nodes see it; the subject for an
    /// authority.
    pub fn name(&self) -> &str {
        let first = self.hosts.iter().find(|host| host.parse::<std::net::IpAddr>().is_err());
        first.filter(|_| !self.is_authority).unwrap_or(&self.common_name)
    }

    /// Returns why the certificate cannot be used at this time since 1970: its dates, or the key in
    /// its folder.
    pub fn fault(&self, now: Duration, path: &Path) -> Option<String> {
        let (now, (from, until)) = (now.as_secs() as i64, self.valid);
        if now < from {
            return Some("is not valid yet: is the clock right?".into());
        }
        if now > until {
            return Some("has expired: sign it again with --renew".into());
        }
        let beside = path.with_file_name(if self.is_authority { "authority.key" } else { "key.pem" });
        if !beside.exists() {
            return None;
        }
        let mode = beside.metadata().map_or(0, |meta| meta.permissions().mode() & 0o777);
        match key(&beside) {
            Err(error) => Some(format!("{error:#}")),
            Ok(key) if key.subject_public_key_info() != self.public_key => {
                Some(format!("{} is not its key", beside.display()))
            }
            Ok(_) if mode & 0o077 != 0 => {
                Some(format!("{0} is open to other users (mode {mode:04o}): chmod 600 {0}", beside.display()))
            }
            Ok(_) => None,
        }
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_string()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from);
            let ip = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from));
            ip.ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

fn date(time: ASN1Time) -> String {
    let time = time.to_datetime();
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

/// Checks that the key is the one of the certificate in the file.
pub fn check_pair(certificate: &Path, key: &KeyPair) -> anyhow::Result<()> {
    match CertificateInfo::read(certificate)?.public_key == key.subject_public_key_info() {
        true => Ok(()),
        false => bail!("{}: the key beside it is not its key", certificate.display()),
    }
}

pub fn key(path: &Path) -> anyhow::Result<KeyPair> {
    KeyPair::from_pem(&text(path)?).with_context(|| format!("{}: is no private key in PEM", path.display()))
}

pub fn text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Creates a folder, unless it exists.
pub fn folder(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Writes new files with these permissions. Writes none of them if one exists already.
pub fn create_all(files: &[(&Path, &str, u32)]) -> anyhow::Result<()> {
    if let Some((path, ..)) = files.iter().find(|(path, ..)| path.symlink_metadata().is_ok()) {
        bail!("{} exists already, and is not overwritten", path.display());
    }
    files.iter().try_for_each(|(path, text, mode)| create(path, text, *mode))
}

fn create(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    })
    .with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file atomically: a reader sees either the old or the new contents.
pub fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    // The file may remain from an interrupted attempt.
    let _ = fs::remove_file(&beside);
    create(&beside, text, 0o644)?;
    fs::rename(&beside, path).with_context(|| format!("cannot replace {}", path.display()))
}
