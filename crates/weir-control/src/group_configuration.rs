//! Defines the configuration of a group of directors, and the format in which it is published.
//!
//! Without files, the configuration is published as plain text. With files, the publication begins with the line
//! `%weir-publication 1`, and a line with the files as JSON; the text follows. A program that does not support this
//! format rejects it, because no configuration begins with `%`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Beginning of a publication with files; the version of the format and a line feed follow.
const FORMAT_PREFIX: &str = "%weir-publication ";
const FORMAT_VERSION: &str = "1";

/// The directory with the received files, in the runtime directory.
pub(crate) const PUBLISHED_FILES: &str = "published-files";

/// A configuration that the group has published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfiguration {
    /// The group name.
    pub group: String,
    /// The configuration version.
    pub version: u64,
    /// The configuration text.
    pub text: String,
    /// How long each director guards the configuration, in milliseconds; 0 = no guard.
    #[serde(default)]
    pub guard_ms: u64,
    /// Certificates, keys, CAs and revocation lists that the text refers to. The directors use them instead of their
    /// own files.
    #[serde(default, skip_serializing_if = "PublishedFiles::is_empty")]
    pub files: PublishedFiles,
}

/// Published files, by the path in the configuration. A directory in `certificates` has one entry per certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublishedFiles(pub BTreeMap<String, Vec<PublishedFile>>);

/// One published certificate with its key, or one file with CA certificates or revocation lists.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// Path of the file on the director that published it.
    pub path: String,
    /// The content in PEM format, including a certificate's key.
    pub pem: String,
    /// The certificate's OCSP response in DER format; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<Vec<u8>>,
}

/// The output omits the content, which may be a private key.
impl fmt::Debug for PublishedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublishedFile({})", self.path)
    }
}

impl PublishedFiles {
    /// Maximum size of all files together, in bytes. With the text and the JSON overhead, a publication is then
    /// smaller than the maximum in weir-cluster (`MAX_CHUNKS`), unless it consists mainly of OCSP responses.
    pub const MAX_BYTES: usize = 8 << 20;
    /// Maximum number of files.
    pub const MAX_FILES: usize = 10_000;

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an error if there are too many files, or they are too large.
    ///
    /// # Errors
    /// Returns a one-line message.
    pub fn check_size(&self) -> Result<(), String> {
        let files = || self.0.values().flatten();
        let bytes = files().map(PublishedFile::bytes).sum::<usize>();
        let (max_mib, max_files) = (Self::MAX_BYTES >> 20, Self::MAX_FILES);
        if bytes > Self::MAX_BYTES {
            return Err(format!(
                "the certificate files of a published configuration must not exceed {max_mib} MiB"
            ));
        }
        if files().count() > max_files {
            return Err(format!(
                "a published configuration must not have more than {max_files} certificate files"
            ));
        }
        Ok(())
    }
}

impl PublishedFile {
    /// Returns the size of the content and the OCSP response, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pem.len() + self.ocsp.as_ref().map_or(0, Vec::len)
    }

    /// Returns a name for a file with this content. The name contains no characters that are special in a path. It
    /// depends on the path and the content, so a renewed certificate gets a different name.
    pub fn name(&self) -> String {
        /// Number of hexadecimal digits in the digest.
        const DIGITS: usize = 32;
        /// Maximum number of characters of the path.
        const PATH_MAX_CHARS: usize = 100;
        let ocsp = self.ocsp.as_deref();
        let parts = [
            self.path.as_bytes(),
            self.pem.as_bytes(),
            ocsp.unwrap_or_default(),
        ];
        let digests = parts.map(weir_cluster::digest).concat();
        let digest = weir_cluster::digest(digests.as_bytes());
        let path = self.path.trim_end_matches(".pem").trim_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let plain: Vec<char> = path
            .chars()
            .map(|c| if is_plain(c) { c } else { '-' })
            .collect();
        let start = plain.len().saturating_sub(PATH_MAX_CHARS);
        let path: String = plain[start..].iter().collect();
        format!("{}-{path}.pem", &digest[..DIGITS])
    }
}

impl GroupConfiguration {
    /// Returns the configuration in the format in which it is published.
    pub fn to_publication(&self) -> String {
        if self.files.is_empty() {
            return self.text.clone();
        }
        // A map with string keys can always be serialized.
        let files = serde_json::to_string(&self.files).unwrap_or_default();
        format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n{files}\n{}", self.text)
    }

    /// Returns the text and the files of a publication.
    ///
    /// # Errors
    /// Returns a one-line message if the publication is from a later version of Weir, is malformed, or contains too
    /// many files or files that are too large. The message contains no part of the files.
    pub fn read_publication(publication: &str) -> Result<(String, PublishedFiles), String> {
        let Some(rest) = publication.strip_prefix(FORMAT_PREFIX) else {
            return Ok((publication.to_owned(), PublishedFiles::default()));
        };
        let (number, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        if number != FORMAT_VERSION {
            return Err(
                "the configuration was published by a later version of Weir; upgrade this director"
                    .to_owned(),
            );
        }
        let malformed = || "the certificate files of the published configuration are malformed";
        let (files, text) = rest.split_once('\n').ok_or_else(malformed)?;
        let files: PublishedFiles = serde_json::from_str(files).map_err(|_| malformed())?;
        files.check_size()?;
        Ok((text.to_owned(), files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, pem: &str) -> PublishedFile {
        PublishedFile {
            path: path.to_owned(),
            pem: pem.to_owned(),
            ocsp: None,
        }
    }

    fn files(list: Vec<PublishedFile>) -> PublishedFiles {
        PublishedFiles(BTreeMap::from([("/etc/weir/certs".to_owned(), list)]))
    }

    #[test]
    fn publications_round_trip_with_and_without_files() {
        let text = "[pool.a]\nservers = []\n".to_owned();
        let mut configuration = GroupConfiguration {
            text: text.clone(),
            ..GroupConfiguration::default()
        };
        // Earlier versions publish and read the text itself.
        assert_eq!(configuration.to_publication(), text);
        let no_files = PublishedFiles::default();
        let read = GroupConfiguration::read_publication(&text);
        assert_eq!(read, Ok((text.clone(), no_files)));

        let with_ocsp = PublishedFile {
            ocsp: Some(vec![0, 10, 255]),
            ..file("/etc/weir/certs/b.pem", "B\n")
        };
        let recorded = r#"{"group":"edge","version":3,"text":"","guard_ms":0}"#;
        let recorded: GroupConfiguration = serde_json::from_str(recorded).unwrap();
        assert!(recorded.files.is_empty());
        configuration.files = files(vec![file("/etc/weir/certs/a\n.pem", "A\r\nä"), with_ocsp]);
        let publication = configuration.to_publication();
        let read = GroupConfiguration::read_publication(&publication);
        assert_eq!(read, Ok((text, configuration.files)));
    }

    #[test]
    fn malformed_publications_are_rejected_without_quoting_them() {
        let read = GroupConfiguration::read_publication;
        let malformed = "the certificate files of the published configuration are malformed";
        for rest in [
            "",
            "{}",
            "[\"secret\"]\n",
            "{\"/a\":\"secret\"}\n",
            "{\"/a\":[{\"path\":\"/a\"}]}\n",
            "{\"/a\":[{\"path\":\"/a\",\"pem\":\"secret\",\"ocsp\":[256]}]}\n",
            "{\"/a\":[\0\n",
        ] {
            let publication = format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n{rest}");
            assert_eq!(read(&publication), Err(malformed.to_owned()), "{rest:?}");
        }
        for later in ["%weir-publication 2\n{}\n", "%weir-publication "] {
            let error = read(later).unwrap_err();
            assert!(error.contains("a later version"), "{error}");
        }
        // Every prefix of a valid publication is rejected, has no files, or has the same files.
        let configuration = GroupConfiguration {
            text: "[pool.a]\n".to_owned(),
            files: files(vec![file("/a", "secret")]),
            ..GroupConfiguration::default()
        };
        let publication = configuration.to_publication();
        for end in 0..publication.len() {
            match read(&publication[..end]) {
                Ok((_, read)) => assert!(read.is_empty() || read == configuration.files),
                Err(error) => assert!(!error.contains("secret"), "{error}"),
            }
        }
    }

    #[test]
    fn too_many_or_too_large_files_are_rejected() {
        let half = "x".repeat(PublishedFiles::MAX_BYTES / 2);
        let two_files = vec![file("/a", &half), file("/b", &half)];
        assert_eq!(files(two_files.clone()).check_size(), Ok(()));
        let three_files = [two_files, vec![file("/c", "x")]].concat();
        let error = files(three_files.clone()).check_size().unwrap_err();
        assert!(error.contains("8 MiB"), "{error}");
        let configuration = GroupConfiguration {
            files: files(three_files),
            ..GroupConfiguration::default()
        };
        let read = GroupConfiguration::read_publication(&configuration.to_publication());
        assert_eq!(read, Err(error));
        let many_files = vec![file("/a", ""); PublishedFiles::MAX_FILES + 1];
        let error = files(many_files).check_size().unwrap_err();
        assert!(error.contains("more than 10000"), "{error}");
    }

    #[test]
    fn name_depends_on_content_and_stays_in_directory() {
        let name = |path, pem| file(path, pem).name();
        let first = name("/etc/weir/certs/a.pem", "A");
        assert!(first.ends_with("-etc-weir-certs-a.pem"), "{first}");
        assert_ne!(first, name("/etc/weir/certs/a.pem", "B"));
        assert_ne!(first, name("/etc/weir/certs/a", "A"));
        let with_ocsp = PublishedFile {
            ocsp: Some(Vec::new()),
            ..file("/etc/weir/certs/a.pem", "A")
        };
        assert_eq!(with_ocsp.name().len(), first.len());
        for path in [
            "../../x",
            "/",
            "",
            "a/../../b",
            "ä\0\n",
            &"/long".repeat(100),
        ] {
            let name = name(path, "A");
            assert!(
                !name.contains(['/', '\0', '\n']) && name.len() < 200,
                "{name}"
            );
            assert!(!name.starts_with('.'), "{name}");
        }
    }

    #[test]
    fn debug_output_contains_no_content() {
        let configuration = GroupConfiguration {
            files: files(vec![file("/a", "secret")]),
            ..GroupConfiguration::default()
        };
        assert!(!format!("{configuration:?}").contains("secret"));
    }
}
