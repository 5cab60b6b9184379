//! `polywire identity`: a small authority for a fleet of nodes, and the certificates that it signs.
//! `files` writes and reads the files, and `dds` makes the documents of DDS Security.

mod dds;
mod files;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use polywire::Config;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use self::{
    dds::{Holder, Names, Permissions},
    files::CertificateInfo,
};
use crate::{
    outcome::{self, Missed, Misuse, Outcome},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb =
    Verb::group("identity", "Certificates, by which nodes prove who they are over TLS", &[NEW, SIGN, PERMIT, SHOW]);

const NEW: Verb = Verb::new::<New>("new", "Makes an authority, which signs the certificates of a fleet")
    .details(
        "Writes FOLDER/authority.pem, which every node gets, and FOLDER/authority.key, which signs for nodes: whoever \
         has it can admit anybody. Keep it on one machine, and no node needs it.",
    )
    .example("polywire identity new fleet");

const SIGN: Verb = Verb::new::<Sign>("sign", "Makes a key and a certificate for a node")
    .details(
        "Writes certificate.pem, key.pem and authority.pem to a folder that has the node's name, unless --to names \
         another. Rules of access know the node by its name. Other nodes connect to it by the names and addresses \
         given with --host, or by its name.",
    )
    .example("polywire identity sign pump-3 --authority fleet --host 127.0.0.1");

const PERMIT: Verb = Verb::new::<Permit>("permit", "Says what nodes may do over DDS Security, by rules of access")
    .details(
        "Makes governance.p7s and permissions.p7s in the folders of nodes, or replaces them. The section [access] of \
         a configuration says which topics and services the holder of each certificate may use; everything else is \
         denied. Programs that know only DDS are bound by them as well. A node takes new files when it starts.",
    )
    .example("polywire identity permit pump-3 hall-1 --authority fleet --access rules.toml");

const SHOW: Verb = Verb::new::<Show>("show", "Shows what certificates say, and whether they are valid")
    .details("The exit code is 1 if one of them is not valid today, or its key does not belong to it.")
    .example("polywire identity show pump-3/certificate.pem");

/// How long before their creation certificates become valid, for nodes whose clocks are slow.
const BEFORE: Duration = Duration::from_secs(3600);
const DAY: u64 = 86_400;

#[derive(Args)]
struct New {
    /// Folder for the files; created if it is not there
    folder: PathBuf,
    /// Name of the authority [default: the folder's]
    #[arg(long)]
    name: Option<String>,
    /// Days until it can sign no more
    #[arg(long, default_value = "3650", value_parser = days())]
    days: u64,
}

#[derive(Args)]
struct Sign {
    /// Name of the node, such as pump-3 or pump-3.example.org
    #[arg(value_parser = name)]
    name: String,
    /// Folder of the authority, as made by `polywire identity new`
    #[arg(long, value_name = "FOLDER")]
    authority: PathBuf,
    /// Name or IP address that other nodes connect to; may be given several times
    #[arg(long = "host", value_name = "HOST", value_parser = host)]
    hosts: Vec<String>,
    /// Days until the certificate expires
    #[arg(long, default_value = "365", value_parser = days())]
    days: u64,
    /// Folder for the files [default: the node's name]
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
    /// Also makes governance.p7s and permissions.p7s, which DDS Security needs: everything is
    /// encrypted, and the node may read and write every topic of every domain, unless --access is
    /// given
    #[arg(long)]
    dds: bool,
    #[command(flatten)]
    rules: Rules,
    /// Replaces a certificate made before: same key, and same hosts unless --host is given. Nodes
    /// that run use it from their next connection on
    #[arg(long)]
    renew: bool,
}

#[derive(Args)]
struct Rules {
    /// Configuration whose section [access] says what the nodes may do over DDS Security
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// How the nodes name topics in DDS
    #[arg(long, value_enum, default_value_t, requires = "access")]
    names: Names,
}

#[derive(Args)]
struct Permit {
    /// Folders of nodes, as made by `polywire identity sign`
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Folder of the authority, as made by `polywire identity new`
    #[arg(long, value_name = "FOLDER")]
    authority: PathBuf,
    /// Configuration whose section [access] says what they may do
    #[arg(long, value_name = "FILE")]
    access: PathBuf,
    /// How the nodes name topics in DDS
    #[arg(long, value_enum, default_value_t)]
    names: Names,
}

#[derive(Args)]
struct Show {
    /// Certificates, in PEM
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

impl Action for New {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let own = || self.folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = self.name.clone().or_else(own).unwrap_or_else(|| "polywire".into());
        let mut params = CertificateParams::default();
        // The path length is 0: the authority signs for nodes, and not for other authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        // The authority also signs the documents of DDS Security.
        let documents = KeyUsagePurpose::DigitalSignature;
        params.key_usages = vec![documents, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(name));
        set_validity(&mut params, self.days);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let [secret, public] = ["authority.key", "authority.pem"].map(|file| self.folder.join(file));
        files::folder(&self.folder)?;
        files::create_all(&[(&secret, &key.serialize_pem(), 0o600), (&public, &certificate.pem(), 0o644)])?;
        if terminal.json {
            terminal.value(&json!({ "certificate": public, "key": secret }))?;
            return Ok(Outcome::Fine);
        }
        terminal.line(&format!("{}: give it to every node", public.display()))?;
        terminal.line(&format!("{}: signs for nodes, and is to stay here", secret.display()))?;
        Ok(Outcome::Fine)
    }
}

impl Action for Sign {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let folder = self.to.clone().unwrap_or_else(|| PathBuf::from(&self.name));
        let [certificate, key, authority] =
            ["certificate.pem", "key.pem", "authority.pem"].map(|file| folder.join(file));
        let (root, signing) = authority_of(&self.authority)?;
        let issuer = Issuer::from_ca_cert_pem(&root, signing)?;
        let own = match self.renew {
            true => files::key(&key)?,
            false => KeyPair::generate()?,
        };
        let params = self.params(&certificate)?;
        let signed = params.clone().signed_by(&own, &issuer)?.pem();
        let secret = own.serialize_pem();
        let mut files: Vec<(&Path, &str, u32)> =
            vec![(&key, &secret, 0o600), (&certificate, &signed, 0o644), (&authority, &root, 0o644)];
        let (governance, permissions) = (folder.join("governance.p7s"), folder.join("permissions.p7s"));
        // Documents expire with the certificate that they were made for.
        let granted = match &self.rules.access {
            Some(file) => Some(Permissions::AccessRules(file, self.rules.names)),
            // The permissions of the node remain unchanged.
            None if self.renew && permissions.exists() => Some(Permissions::SignedDocument(&permissions)),
            None => self.dds.then_some(Permissions::Everything),
        };
        let valid = (params.not_before.unix_timestamp(), params.not_after.unix_timestamp());
        let holder = Holder { name: &self.name, valid };
        let sign = |granted| dds::documents(&holder, &granted, &root, &issuer.key().serialize_pem());
        let documents = granted.map(sign).transpose()?;
        self.rules.access.iter().try_for_each(|file| warn_of_rates(terminal, file))?;
        if let Some(documents) = &documents {
            files.push((&governance, &documents.governance, 0o644));
            files.push((&permissions, &documents.permissions, 0o644));
        }
        if self.renew {
            // The key remains.
            files.iter().skip(1).rev().try_for_each(|(file, text, _)| files::replace(file, text))?;
        } else {
            files::folder(&folder)?;
            files::create_all(&files)?;
        }
        if terminal.json {
            let mut made = json!({ "certificate": certificate, "key": key, "authority": authority });
            if documents.is_some() {
                (made["governance"], made["permissions"]) = (json!(governance), json!(permissions));
            }
            terminal.value(&made)?;
            return Ok(Outcome::Fine);
        }
        terminal.line("[identity]")?;
        for (what, file) in [("certificate", &certificate), ("key", &key), ("authority", &authority)] {
            terminal.line(&format!("{what} = {}", json!(file)))?;
        }
        Ok(Outcome::Fine)
    }
}

impl Sign {
    fn params(&self, before: &Path) -> anyhow::Result<CertificateParams> {
        let mut hosts = self.hosts.clone();
        if self.renew {
            let certificate = CertificateInfo::read(before)?;
            if certificate.name() != self.name {
                let reason = format!("{} is of '{}', not '{}'", before.display(), certificate.name(), self.name);
                return Err(Misuse(reason).into());
            }
            if hosts.is_empty() {
                hosts = certificate.hosts;
            }
        }
        // The first name is the identity of the node.
        hosts.retain(|host| *host != self.name);
        hosts.insert(0, self.name.clone());
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(self.name.clone()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, self.days);
        Ok(params)
    }
}

/// Warns of rules with rates, because DDS has no such rules.
fn warn_of_rates(terminal: &Terminal, access: &Path) -> anyhow::Result<()> {
    let rules = Config::read(access)?.access.unwrap_or_default().allow;
    if rules.iter().any(|rule| rule.bytes_per_second.is_some()) {
        terminal.warning(&format!("{}: DDS does not keep to bytes_per_second", access.display()));
    }
    Ok(())
}

/// Reads the certificate of an authority, in PEM, and its key.
fn authority_of(folder: &Path) -> anyhow::Result<(String, KeyPair)> {
    let certificate = folder.join("authority.pem");
    let key = files::key(&folder.join("authority.key"))?;
    files::check_pair(&certificate, &key)?;
    Ok((files::text(&certificate)?, key))
}

impl Action for Permit {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (root, key) = authority_of(&self.authority)?;
        let (key, granted) = (key.serialize_pem(), Permissions::AccessRules(&self.access, self.names));
        let documents = self.folders.iter().map(|folder| {
            let certificate = CertificateInfo::read(&folder.join("certificate.pem"))?;
            if certificate.name() != certificate.common_name {
                let reason = format!("{}: DDS knows it by another name than its own", folder.display());
                return Err(Misuse(reason).into());
            }
            dds::documents(&Holder { name: certificate.name(), valid: certificate.valid }, &granted, &root, &key)
        });
        // Documents are written for all nodes or for none.
        let documents = documents.collect::<anyhow::Result<Vec<_>>>()?;
        warn_of_rates(terminal, &self.access)?;
        for (folder, made) in self.folders.iter().zip(documents) {
            let [governance, permissions] = ["governance.p7s", "permissions.p7s"].map(|file| folder.join(file));
            files::replace(&governance, &made.governance)?;
            files::replace(&permissions, &made.permissions)?;
            match terminal.json {
                true => terminal.value(&json!({ "governance": governance, "permissions": permissions }))?,
                false => terminal.line(&format!("{}: start the node again", permissions.display()))?,
            }
        }
        Ok(Outcome::Fine)
    }
}

impl Action for Show {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut wrong = Vec::new();
        for file in &self.files {
            let certificate = CertificateInfo::read(file)?;
            let fault = certificate.fault(now(), file);
            if terminal.json {
                terminal.value(&json!({
                    "file": file, "name": certificate.name(), "hosts": certificate.hosts,
                    "authority": certificate.is_authority, "issuer": certificate.issuer, "from": certificate.from,
                    "until": certificate.until, "fault": fault,
                }))?;
            } else {
                let kind = if certificate.is_authority { "authority" } else { "node" };
                terminal.line(&format!("{}: {kind} {}", file.display(), certificate.name()))?;
                let others: Vec<&str> = certificate.hosts.iter().skip(1).map(String::as_str).collect();
                if !others.is_empty() {
                    terminal.line(&format!("  hosts   {}", others.join(", ")))?;
                }
                terminal.line(&format!("  issuer  {}", certificate.issuer))?;
                terminal.line(&format!("  valid   {} to {}", certificate.from, certificate.until))?;
                fault.iter().try_for_each(|fault| terminal.line(&format!("  {fault}")))?;
            }
            wrong.extend(fault.map(|fault| format!("{}: {fault}", file.display())));
        }
        match wrong.first() {
            None => Ok(Outcome::Fine),
            Some(first) => Err(Missed(first.clone()).into()),
        }
    }
}

fn set_validity(params: &mut CertificateParams, days: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + (now().saturating_sub(BEFORE));
    params.not_after = epoch + (now() + Duration::from_secs(days * DAY));
}

/// Returns the time since 1970.
fn now() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs())
}

fn days() -> clap::builder::RangedU64ValueParser {
    // The limit is a hundred years, because dates beyond 9999 cannot be written.
    clap::value_parser!(u64).range(1..=36_500)
}

/// Parses the name of a node: a DNS name in lower case, and not an IP address.
fn name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let known = label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        known && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    match text.len() <= 253 && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err() {
        true => Ok(text.to_owned()),
        false => Err("lower-case letters, digits, hyphens and dots are expected, as in pump-3".into()),
    }
}

/// Parses an IP address or a name.
fn host(text: &str) -> Result<String, String> {
    let text = text.to_ascii_lowercase();
    text.parse::<IpAddr>().map(|ip| ip.to_string()).or_else(|_| name(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for good in ["pump-3", "a", "a.b_c.example", "x9"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Pump", "-a", "a-", "a..b", "a b", "10.0.0.1", "*.a", "ä", &"a".repeat(64), "a/b", ".."] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(host("10.0.0.1").as_deref(), Ok("10.0.0.1"));
        assert_eq!(host("0:0::1").as_deref(), Ok("::1"));
        assert_eq!(host("Pump.Example").as_deref(), Ok("pump.example"));
    }
}
