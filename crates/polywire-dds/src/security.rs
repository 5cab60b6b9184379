//! DDS Security: the files by which a participant proves its identity and its permissions.

use std::{
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use cyclors::dds_qset_prop;
use openssl::{
    asn1::{Asn1Time, Asn1TimeRef},
    error::ErrorStack,
    pkcs7::{Pkcs7, Pkcs7Flags},
    stack::Stack,
    x509::{X509, store::X509StoreBuilder},
};

use crate::{error::Error, expiry::Expiry, qos::Native};

/// The files of a participant with DDS Security, as its built-in plug-ins read them. Certificates
/// and the key are PEM, the documents are signed as S/MIME.
///
/// ```
/// use polywire_dds::{Error, LOOPBACK, Participant, Qos, Security};
/// let [authority, certificate, key] = ["authority.pem", "certificate.pem", "key.pem"].map(Into::into);
/// let [governance, permissions] = ["governance.p7s", "permissions.p7s"].map(Into::into);
/// let security = Security { authority, certificate, key, governance, permissions };
/// let missing = Participant::secure(102, Some(LOOPBACK), &Qos::default(), &security);
/// let Err(Error::Security(reason)) = missing else { panic!("{:?}", missing.err()) };
/// assert!(reason.contains("authority.pem"), "{reason}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// The certificate of the authority that signs certificates and documents. If the file has
    /// several, the first counts.
    pub authority: PathBuf,
    /// The participant's certificate.
    pub certificate: PathBuf,
    /// The private key of the certificate: EC of 256 bits, or RSA of 2048.
    pub key: PathBuf,
    /// The document that specifies what is protected, and how. It is the same for all participants.
    pub governance: PathBuf,
    /// The document that specifies what the participant may do.
    pub permissions: PathBuf,
}

/// The built-in plug-ins, which are linked into this program under these names.
const PLUGINS: [(&str, &str); 9] = [
    ("dds.sec.auth.library.path", "dds_security_auth"),
    ("dds.sec.auth.library.init", "init_authentication"),
    ("dds.sec.auth.library.finalize", "finalize_authentication"),
    ("dds.sec.crypto.library.path", "dds_security_crypto"),
    ("dds.sec.crypto.library.init", "init_crypto"),
    ("dds.sec.crypto.library.finalize", "finalize_crypto"),
    ("dds.sec.access.library.path", "dds_security_ac"),
    ("dds.sec.access.library.init", "init_access_control"),
    ("dds.sec.access.library.finalize", "finalize_access_control"),
];

impl Security {
    /// Sets the files as properties of a participant. Returns when they expire.
    pub(crate) fn set(&self, qos: &Native) -> Result<Expiry, Error> {
        let expiry = self.check()?;
        let files = [
            ("dds.sec.auth.identity_ca", &self.authority),
            ("dds.sec.auth.identity_certificate", &self.certificate),
            ("dds.sec.auth.private_key", &self.key),
            ("dds.sec.access.permissions_ca", &self.authority),
            ("dds.sec.access.governance", &self.governance),
            ("dds.sec.access.permissions", &self.permissions),
        ];
        for (name, file) in files {
            let file = file.to_str().ok_or_else(|| Error::Text(file.display().to_string()))?;
            set(qos, name, &format!("file:{file}"))?;
        }
        PLUGINS.iter().try_for_each(|(name, value)| set(qos, name, value))?;
        Ok(expiry)
    }

    /// Checks what Cyclone does not report: which file is missing or not signed by the authority,
    /// and how long the certificate and the permissions are valid.
    fn check(&self) -> Result<Expiry, Error> {
        let authority = certificate(&self.authority)?;
        text(&self.governance, &authority, &self.authority)?;
        let permissions = text(&self.permissions, &authority, &self.authority)?;
        let certificate = certificate(&self.certificate)?;
        let left = time_left(certificate.not_after()).map_err(|_| wrong(&self.certificate, "has no date of expiry"))?;
        let ends = ends(&permissions);
        let ends = ends.map_err(|_| wrong(&self.permissions, "has a malformed date in <not_after>"))?;
        let left = ends.into_iter().fold(left, Duration::min);
        Expiry::after(left).ok_or_else(|| wrong(&self.permissions, "has no date of expiry"))
    }
}

fn wrong(file: &Path, reason: impl std::fmt::Display) -> Error {
    Error::Security(format!("{}: {reason}", file.display()))
}

fn certificate(file: &Path) -> Result<X509, Error> {
    let bytes = fs::read(file).map_err(|cause| wrong(file, cause))?;
    X509::from_pem(&bytes).map_err(|_| wrong(file, "has no certificate in PEM"))
}

/// Reads a signed document and returns its text. Fails if the authority has not signed it.
fn text(file: &Path, authority: &X509, authority_file: &Path) -> Result<Vec<u8>, Error> {
    let bytes = fs::read(file).map_err(|cause| wrong(file, cause))?;
    let Ok((document, Some(content))) = Pkcs7::from_smime(&bytes) else {
        return Err(wrong(file, "is no S/MIME document with a text beside its signature"));
    };
    let by = authority_file.display();
    verified(&document, &content, authority)
        .map_err(|_| wrong(file, format!("was not signed by the authority in {by}, or was changed since")))
}

/// Verifies a document as Cyclone does, and returns its text.
fn verified(document: &Pkcs7, content: &[u8], authority: &X509) -> Result<Vec<u8>, ErrorStack> {
    let mut signers = Stack::new()?;
    signers.push(authority.clone())?;
    let flags = Pkcs7Flags::TEXT | Pkcs7Flags::NOVERIFY | Pkcs7Flags::NOINTERN;
    let (nobody, mut text) = (X509StoreBuilder::new()?.build(), Vec::new());
    document.verify(&signers, &nobody, Some(content), Some(&mut text), flags)?;
    Ok(text)
}

/// Returns how long each grant of the permissions is still valid. Expired grants are left out:
/// Cyclone refuses them. Dates have the form `2027-11-27T09:29:57Z`. A date with a positive offset
/// from UTC is taken as if the offset were the largest that exists.
fn ends(permissions: &[u8]) -> Result<Vec<Duration>, ErrorStack> {
    const MAX_OFFSET: Duration = Duration::from_secs(14 * 3600);
    let text = String::from_utf8_lossy(permissions).to_ascii_lowercase();
    let mut ends = Vec::new();
    for rest in text.split("<not_after>").skip(1) {
        let date = rest.split('<').next().unwrap_or_default().trim();
        let digits: String = date.chars().take(19).filter(char::is_ascii_digit).collect();
        let left = time_left(&*Asn1Time::from_str(&format!("{digits}Z"))?)?;
        if !left.is_zero() {
            ends.push(if date.contains('+') { left.saturating_sub(MAX_OFFSET) } else { left });
        }
    }
    Ok(ends)
}

/// Returns the time that is left; zero if `until` has passed.
fn time_left(until: &Asn1TimeRef) -> Result<Duration, ErrorStack> {
    let left = Asn1Time::days_from_now(0)?.diff(until)?;
    let seconds = i64::from(left.days) * 86_400 + i64::from(left.secs);
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn set(qos: &Native, name: &str, value: &str) -> Result<(), Error> {
    let text = |text: &str| CString::new(text).map_err(|_| Error::Text(text.into()));
    let (name, value) = (text(name)?, text(value)?);
    // SAFETY: the object is valid and not shared; both texts end with a zero byte and are copied.
    unsafe { dds_qset_prop(qos.as_mut_ptr(), name.as_ptr(), value.as_ptr()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_permissions_are_read() {
        let ends = |dates: &[&str]| {
            let grant = |date: &&str| format!("<grant><validity><Not_After> {date} </Not_After></validity></grant>");
            ends(dates.iter().map(grant).collect::<String>().as_bytes()).map_err(drop)
        };
        let days = |of: &str| ends(&[of]).map(|ends| ends.first().map(|left| left.as_secs() / 86_400));
        let plain = days("2120-01-01T00:00:00").expect("a date").expect("in the future");
        assert!((20_000..40_000).contains(&plain), "{plain}");
        assert_eq!(days("2120-01-01T00:00:00.5Z"), Ok(Some(plain)));
        assert_eq!(days("2120-01-01T14:00:00+02:00"), Ok(Some(plain)));
        assert_eq!(ends(&["2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z"]).map(|ends| ends.len()), Ok(1));
        for malformed in ["", "soon", "2120-01-01", "2120-13-01T00:00:00Z"] {
            assert_eq!(ends(&[malformed]), Err(()), "{malformed}");
        }
        assert_eq!(ends(&[]), Ok(vec![]));
    }
}
