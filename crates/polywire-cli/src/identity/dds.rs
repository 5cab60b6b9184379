//! The documents of DDS Security: what is protected in a domain, and what a node may do in it. Both
//! are XML that the authority signs as S/MIME.

use rcgen::CertificateParams;

/// Whoever is in the fleet gets in, and everything is encrypted: whole packets for the members of
/// the fleet, and in them each topic's messages for those who may read it. Cyclone refuses domains
/// above 230.
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

/// The signed documents.
pub struct Documents {
    pub governance: String,
    pub permissions: String,
}

/// Makes the documents of a node, as long valid as its certificate. The authority's certificate and
/// key are PEM.
#[cfg(feature = "dds-security")]
pub fn documents(name: &str, certificate: &CertificateParams, authority: &str, key: &str) -> anyhow::Result<Documents> {
    let (authority, key) = (openssl::x509::X509::from_pem(authority.as_bytes())?, key.as_bytes());
    let key = openssl::pkey::PKey::private_key_from_pem(key)?;
    let sign = |document: &str| -> anyhow::Result<String> {
        use openssl::{
            pkcs7::{Pkcs7, Pkcs7Flags},
            stack::Stack,
        };
        let (document, flags) = (document.as_bytes(), Pkcs7Flags::TEXT | Pkcs7Flags::DETACHED);
        let signed = Pkcs7::sign(&authority, &key, &*Stack::new()?, document, flags)?;
        Ok(String::from_utf8(signed.to_smime(document, flags)?)?)
    };
    Ok(Documents { governance: sign(GOVERNANCE)?, permissions: sign(&permissions(name, certificate))? })
}

#[cfg(not(feature = "dds-security"))]
pub fn documents(_: &str, _: &CertificateParams, _: &str, _: &str) -> anyhow::Result<Documents> {
    anyhow::bail!("this program was built without DDS Security: build it with the feature 'dds-security'")
}

/// The node may read and write every topic of every domain.
#[cfg(feature = "dds-security")]
fn permissions(name: &str, certificate: &CertificateParams) -> String {
    let [from, until] = [certificate.not_before, certificate.not_after].map(|time| {
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
      <allow_rule>
        <domains><id_range><min>0</min><max>230</max></id_range></domains>
        <publish><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></publish>
        <subscribe><topics><topic>*</topic></topics><partitions><partition>*</partition></partitions></subscribe>
      </allow_rule>
      <default>DENY</default>
    </grant>
  </permissions>
</dds>
"#
    )
}
