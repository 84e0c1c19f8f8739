//! Tests that directors without certificate files serve TLS with the files that the group has published.
//!
//! Also tests what happens if these files cannot be used.

use std::fs;
use std::path::PathBuf;

use super::{DIRECTORS, Group, SERVERS, TIMEOUT, config, host_number, privileged, wait_for};

const PORT: u16 = 8443;

impl Group {
    fn certificate_dir(&self) -> PathBuf {
        self.world.path("certs")
    }

    /// Creates a certificate with its key on the directors, and a copy of the certificate for the client.
    fn create_certificate(&self, copy: &str) {
        fs::create_dir_all(self.certificate_dir()).expect("create the directory");
        self.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=www.test -addext \
             subjectAltName=DNS:www.test -addext basicConstraints=critical,CA:FALSE -keyout certs/www.key -out \
             certs/www.crt",
        );
        let certificate = self.certificate_dir().join("www.crt");
        fs::copy(certificate, self.world.path(copy)).expect("copy the certificate");
    }

    /// Configures a group key, and permits the certificates and other files.
    fn permit_files(&mut self, others: &[&str]) {
        let others = others.iter().map(|name| self.world.path(name));
        let files: Vec<PathBuf> = others.chain([self.certificate_dir()]).collect();
        self.cluster_keys =
            format!("group_key = \"a key of sixteen bytes or more\"\nfiles = {files:?}\n");
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

    /// Returns a configuration to publish that names the certificates.
    fn tls_config(&self) -> String {
        let certificates = self.certificate_dir();
        format!(
            "{}[service.web.tls]\ncertificates = [{certificates:?}]\n",
            config(PORT, &SERVERS)
        )
    }

    fn publish_with_certificates(&self, n: usize) {
        let output = self.publish(n, &self.tls_config(), "0s");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns the pointer to the published version in etcd.
    fn published_pointer(&self) -> Vec<u8> {
        let output = self.etcdctl(&["get", "/weir/edge/config/current"]);
        assert!(output.status.success() && !output.stdout.is_empty());
        output.stdout
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
    group.permit_files(&[]);
    for n in 0..2 {
        group.start(n);
    }
    // A file that the publishing director cannot read is reported with its position.
    let output = group.publish(0, &group.tls_config(), "0s");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("cluster/edge:"),
        "{errors}"
    );
    assert!(errors.contains("certs: No such file"), "{errors}");

    group.create_certificate("first.pem");
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
    group.create_certificate("second.pem");
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

/// With `--local-files`, a director uses its own files, and replaces them without a publication.
#[test]
fn directors_use_their_own_files_if_only_the_text_is_published() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 2);
    group.permit_files(&[]);
    group.start_all();
    group.create_certificate("first.pem");
    group.publish_with_certificates(0);
    for n in 0..2 {
        assert_eq!(group.received_files(n), 1, "director {n}");
    }
    let path = group.file_path("local.toml");
    fs::write(&path, group.tls_config()).expect("write the file");
    let arguments = [
        "cluster",
        "publish",
        &path,
        "--guard",
        "0s",
        "--local-files",
    ];
    group.run_weir(0, &arguments);
    for n in 0..2 {
        assert!(group.serves_with(n, "first.pem"), "director {n}");
        wait_for("the published files to be removed", TIMEOUT, || {
            group.received_files(n) == 0
        });
    }
    group.create_certificate("second.pem");
    for n in 0..2 {
        wait_for("the renewed certificate", TIMEOUT, || {
            group.serves_with(n, "second.pem")
        });
        assert_eq!(group.group(n)["version"], 2, "director {n}");
    }
}

/// Each director checks the certificate of its own service. The certificate that the check rejects is valid otherwise.
#[test]
fn certificate_that_fails_on_a_director_is_rolled_back() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 2);
    group.permit_files(&["authority.pem"]);
    group.start_all();
    group.create_certificate("first.pem");
    fs::copy(
        group.world.path("first.pem"),
        group.world.path("authority.pem"),
    )
    .expect("copy the certificate");
    let text = format!(
        "{}[pool.self]\nservers = [\"127.0.0.1:{PORT}\"]\n[pool.self.check]\nkind = \"tls\"\nca = {:?}\nserver_name = \
         \"www.test\"\ninterval = \"200ms\"\ntimeout = \"150ms\"\nfall = 2\nrise = 1\n[service.self]\nlisten = \
         [\"127.0.0.1:8081\"]\nforward = \"proxy\"\nprotocol = \"tcp\"\npool = \"self\"\n",
        group.tls_config(),
        group.file_path("authority.pem"),
    );
    let output = group.publish(0, &text, "0s");
    assert!(output.status.success(), "{output:?}");
    for n in 0..2 {
        wait_for("the check", TIMEOUT, || {
            let status = group.status(n);
            let services = status["services"].as_array().cloned().unwrap_or_default();
            let own = services.into_iter().find(|it| it["name"] == "self");
            own.is_some_and(|it| it["servers"][0]["state"] == "up")
        });
    }
    let published = group.published_pointer();

    // A key of a different certificate is rejected before anything is published.
    group.create_certificate("second.pem");
    group.openssl("ecparam -name prime256v1 -genkey -noout -out certs/www.key");
    let output = group.publish(0, &text, "3s");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(
        errors.contains("cluster/edge:") && errors.contains("does not match the certificate"),
        "{errors}"
    );
    assert!(!errors.contains("PRIVATE KEY"), "{errors}");
    assert_eq!(group.published_pointer(), published);
    // These are the certificate and the CA of the active version.
    assert_eq!(group.received_files(0), 2);

    // The guard of the first director returns to the previous certificate, and the other director does not use the new
    // one.
    group.create_certificate("second.pem");
    let output = group.publish(0, &text, "3s");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("was stopped by lb"),
        "{errors}"
    );
    for n in 0..2 {
        assert!(group.serves_with(n, "first.pem"), "director {n}");
        assert!(!group.serves_with(n, "second.pem"), "director {n}");
        assert_eq!(group.group(n)["version"], 1, "director {n}");
        wait_for("the rejected certificate to be removed", TIMEOUT, || {
            group.received_files(n) == 2
        });
    }
}
