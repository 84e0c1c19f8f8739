//! Tests that directors without certificate files serve TLS with the files that the group has published.

use std::fs;
use std::path::PathBuf;

use super::{DIRECTORS, Group, SERVERS, TIMEOUT, config, host_number, privileged, wait_for};

const PORT: u16 = 8443;

impl Group {
    fn certificate_dir(&self) -> PathBuf {
        self.world.path("certs")
    }

    /// Creates a certificate with its key on the directors, and a copy of the certificate for the client.
    fn make_certificate(&self, copy: &str) {
        fs::create_dir_all(self.certificate_dir()).expect("create the directory");
        self.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=www.test -addext \
             subjectAltName=DNS:www.test -keyout certs/www.key -out certs/www.crt",
        );
        let certificate = self.certificate_dir().join("www.crt");
        fs::copy(certificate, self.world.path(copy)).expect("copy the certificate");
    }

    fn remove_certificates(&self) {
        fs::remove_dir_all(self.certificate_dir()).expect("remove the certificates");
    }

    /// Returns whether a director responds on the TLS port with this certificate.
    fn serves_with(&self, n: usize, certificate: &str) -> bool {
        let address = format!("10.71.0.{}", host_number(n));
        let (certificate, resolved) = (
            self.file_path(certificate),
            format!("www.test:{PORT}:{address}"),
        );
        let line = format!(
            "curl -sS --max-time 5 --cacert {certificate} --resolve {resolved} https://www.test:{PORT}/name"
        );
        self.world.output("client", &line).status.success()
    }

    fn publish_with_certificates(&self, n: usize) {
        let certificates = self.certificate_dir();
        let text = format!(
            "{}[service.web.tls]\ncertificates = [{certificates:?}]\n",
            config(PORT, &SERVERS)
        );
        let output = self.publish(n, &text, "0s");
        assert!(output.status.success(), "{output:?}");
    }

    fn received_files(&self, n: usize) -> usize {
        let directory = format!("run-{}/published-files", DIRECTORS[n]);
        let entries = fs::read_dir(self.world.path(&directory));
        entries.map_or(0, Iterator::count)
    }
}

#[test]
fn directors_without_certificate_files_serve_published_ones() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 3);
    let certificates = group.certificate_dir();
    group.cluster_keys =
        format!("group_key = \"a key of sixteen bytes or more\"\nfiles = [{certificates:?}]\n");
    for n in 0..2 {
        group.start(n);
    }
    // A file that the publishing director cannot read is reported with its position.
    let text = format!(
        "{}[service.web.tls]\ncertificates = [{certificates:?}]\n",
        config(PORT, &SERVERS)
    );
    let output = group.publish(0, &text, "0s");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("cluster/edge:"),
        "{errors}"
    );
    assert!(errors.contains("certs: No such file"), "{errors}");

    group.make_certificate("first.pem");
    group.publish_with_certificates(0);
    group.remove_certificates();
    for n in 0..2 {
        assert!(group.serves_with(n, "first.pem"), "director {n}");
    }
    // A director that starts later has never had the files.
    group.start(2);
    wait_for("the certificate", TIMEOUT, || {
        group.serves_with(2, "first.pem")
    });
    let status = group.status(2).to_string();
    assert!(status.contains("published-files"), "{status}");

    // etcd has the key only in encrypted form, and it is in no log.
    let stored = group.etcdctl(&["get", "--prefix", "/weir/"]).stdout;
    let has_key = |bytes: &[u8]| bytes.windows(11).any(|part| part == b"PRIVATE KEY");
    assert!(!stored.is_empty() && !has_key(&stored));
    for name in DIRECTORS.iter().take(3) {
        let log = fs::read(group.world.path(&format!("{name}.log"))).expect("read the log");
        assert!(!has_key(&log), "{name}");
    }
    let plan = group.weir(1, &["plan"]);
    assert!(!has_key(&plan.stdout) && !has_key(&plan.stderr), "{plan:?}");

    // A renewed certificate with the same configuration is a new version.
    group.make_certificate("second.pem");
    group.publish_with_certificates(0);
    group.remove_certificates();
    for n in 0..3 {
        assert!(group.serves_with(n, "second.pem"), "director {n}");
        assert!(!group.serves_with(n, "first.pem"), "director {n}");
        wait_for("the previous certificate to be removed", TIMEOUT, || {
            group.received_files(n) == 1
        });
    }
    // A director without the files can publish: it uses those of the active version.
    group.publish_with_certificates(1);

    // After a reboot without etcd and without the files, the last state on disk contains the certificate.
    group.stop(2);
    group.kill_etcd(0);
    let runtime = group.world.path(&format!("run-{}", DIRECTORS[2]));
    fs::remove_dir_all(runtime).expect("remove the runtime directory");
    group.start(2);
    assert!(group.serves_with(2, "second.pem"));
}
