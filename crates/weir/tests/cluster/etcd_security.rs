//! Tests a group whose etcd requires mutual TLS and users.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{Group, SERVERS, TIMEOUT, config, privileged, wait_for};

const CURRENT: &str = "/weir/edge/config/current";
const PASSWORD: &str = "password of weir";

impl Group {
    /// Returns the scheme of etcd's URLs.
    pub(super) fn scheme(&self) -> &'static str {
        match self.is_secured {
            true => "https://",
            false => "http://",
        }
    }

    pub(super) fn file_path(&self, name: &str) -> String {
        let path = self.world.path(name);
        path.to_str().expect("path is not UTF-8").to_owned()
    }

    /// Creates a CA, a certificate for the first etcd member, and one for the directors.
    pub(super) fn create_certificates(&self) {
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
        self.openssl(&format!(
            "req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem"
        ));
        // When users are enabled, etcd's gateway rejects clients whose certificates have a common name.
        for (name, subject, extension) in [
            ("etcd", "CN", "subjectAltName=IP:10.71.0.40"),
            ("weir", "O", "extendedKeyUsage=clientAuth"),
        ] {
            fs::write(self.world.path("extension"), extension).expect("write the file");
            self.openssl(&format!(
                "req {key} -subj /{subject}={name} -keyout {name}.key -out {name}.csr"
            ));
            self.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extension -out \
                 {name}.pem"
            ));
        }
        fs::write(self.world.path("password"), PASSWORD).expect("write the file");
    }

    pub(super) fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .current_dir(self.world.path("."))
            .args(arguments.split_whitespace())
            .output()
            .expect("run openssl");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {errors}");
    }

    /// Returns the TLS arguments of etcd, and those for JSON web tokens if [`Self::create_token_keys`] was called.
    pub(super) fn etcd_security(&self) -> Vec<String> {
        if !self.is_secured {
            return Vec::new();
        }
        let mut arguments = vec![
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", self.file_path("ca.pem")),
            format!("--cert-file={}", self.file_path("etcd.pem")),
            format!("--key-file={}", self.file_path("etcd.key")),
        ];
        if self.world.path("token.pub").exists() {
            let (public, private) = (self.file_path("token.pub"), self.file_path("token.key"));
            arguments.push(format!(
                "--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"
            ));
        }
        arguments
    }

    /// Creates the keys with which etcd signs JSON web tokens.
    fn create_token_keys(&self) {
        self.openssl("genrsa -out token.key 2048");
        self.openssl("rsa -in token.key -pubout -out token.pub");
    }

    fn restart_etcd(&mut self) {
        self.kill_etcd(0);
        for n in 0..2 {
            wait_for("the loss of etcd", TIMEOUT, || {
                self.group(n)["etcd"] == "away"
            });
        }
        self.start_etcd(0);
        for n in 0..2 {
            wait_for("etcd", TIMEOUT, || self.group(n)["etcd"] == "connected");
        }
    }

    /// Returns the TLS and user arguments of etcdctl, for etcd's root user.
    pub(super) fn etcdctl_security(&self) -> Vec<String> {
        if !self.is_secured {
            return Vec::new();
        }
        vec![
            format!("--cacert={}", self.file_path("ca.pem")),
            format!("--cert={}", self.file_path("weir.pem")),
            format!("--key={}", self.file_path("weir.key")),
        ]
    }

    /// Returns the keys of `[cluster]` for TLS and the user.
    pub(super) fn cluster_security(&self) -> String {
        if !self.is_secured {
            return String::new();
        }
        format!(
            "ca = {:?}\ncertificate = {:?}\nkey = {:?}\nuser = \"weir\"\npassword = {{ file = {:?} }}\ngroup_key = \
             \"a key of sixteen bytes or more\"\n",
            self.file_path("ca.pem"),
            self.file_path("weir.pem"),
            self.file_path("weir.key"),
            self.file_path("password")
        )
    }

    /// Runs etcdctl as etcd's root user and asserts that it succeeds. Returns its output.
    fn etcdctl_as_root(&self, arguments: &[&str]) -> String {
        let output = self.etcdctl(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn enable_users(&self) {
        for arguments in [
            "user add root:root",
            "user grant-role root root",
            "role add weir",
            "role grant-permission --prefix=true weir readwrite /weir/edge/",
            "user grant-role weir weir",
            "auth enable",
        ] {
            if arguments == "user grant-role weir weir" {
                self.etcdctl_as_root(&["user", "add", &format!("weir:{PASSWORD}")]);
            }
            let arguments: Vec<&str> = arguments.split(' ').collect();
            self.etcdctl_as_root(&arguments);
        }
    }

    /// Returns the error that a director reports for the group's connection to etcd.
    fn etcd_error(&self, n: usize) -> String {
        let group = self.group(n);
        group["error"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn group_works_with_tls_and_users_in_etcd() {
    if !privileged() {
        return;
    }
    let mut group = Group::with_options(1, 2, 2, true);
    group.enable_users();
    fs::write(group.world.path("password"), "wrong").expect("write the file");
    group.start(0);
    // etcd computes a slow hash of the password, so on a busy machine the director may report a timeout first.
    wait_for("the password to be rejected", 3 * TIMEOUT, || {
        group.etcd_error(0).contains("authentication failed")
    });
    group.stop(0);
    fs::write(group.world.path("password"), PASSWORD).expect("write the file");
    group.start_all();
    let published = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(published.status.success(), "{published:?}");
    assert!(group.serves(0, 8080) && group.serves(1, 8080));
    let etcdctl_as_root = |arguments: &[&str]| {
        let mut all_arguments = vec!["--user", "root:root"];
        all_arguments.extend(arguments);
        group.etcdctl_as_root(&all_arguments)
    };
    let stored = etcdctl_as_root(&["get", "--prefix", "/weir/"]);
    assert!(stored.contains("/weir/edge/config/chunk/"), "{stored}");
    assert!(
        !stored.contains("10.71.0.20"),
        "configuration must be encrypted: {stored}"
    );

    let previous = etcdctl_as_root(&["get", "--print-value-only", CURRENT]);

    // A client that can write to etcd but does not have the group key cannot change the configuration.
    let text = config(8081, &SERVERS);
    let path = group.file_path("unsealed.toml");
    fs::write(&path, &text).expect("write the file");
    let sum = Command::new("sha256sum").arg(&path).output();
    let sum = String::from_utf8(sum.expect("run sha256sum").stdout).expect("text is not UTF-8");
    let digest = sum.split(' ').next().expect("no digest in the output");
    let pointer = serde_json::json!({
        "version": 2, "digest": digest, "bytes": text.len(), "chunks": [digest], "sealed": false, "by": "lb9",
    });
    etcdctl_as_root(&["put", &format!("/weir/edge/config/chunk/{digest}"), &text]);
    etcdctl_as_root(&["put", CURRENT, &pointer.to_string()]);
    wait_for("the configuration to be rejected", TIMEOUT, || {
        group.group(0)["rollout"] == "stopped"
    });
    let reason = group.group(0)["rollout_reason"].to_string();
    assert!(reason.contains("not encrypted"), "{reason}");
    assert!(group.serves(0, 8080) && !group.serves(0, 8081));

    // Such a client also cannot replay a previous configuration with a new version, or add a server.
    let published = group.publish(0, &config(8083, &SERVERS), "0s");
    assert!(published.status.success(), "{published:?}");
    let mut previous: Value = serde_json::from_str(&previous).expect("parse the output");
    previous["version"] = u64::MAX.into();
    etcdctl_as_root(&["put", CURRENT, &previous.to_string()]);
    etcdctl_as_root(&["put", "/weir/edge/config/complete", &previous.to_string()]);
    etcdctl_as_root(&[
        "put",
        "/weir/edge/server/web/10.71.0.99:80",
        "{\"weight\":65535}",
    ]);
    etcdctl_as_root(&[
        "put",
        &format!("/weir/edge/override/web/{}", SERVERS[0]),
        "{\"state\":\"maint\"}",
    ]);
    for n in 0..2 {
        wait_for("the configuration to be rejected", TIMEOUT, || {
            let reason = group.group(n)["rollout_reason"].to_string();
            reason.contains("changed in etcd")
        });
    }
    group.run_weir(0, &["server", &format!("web/{}", SERVERS[1]), "drain"]);
    for n in 0..2 {
        wait_for("the drain", TIMEOUT, || {
            group.state(n, SERVERS[1]) == "drain"
        });
        assert!(group.serves(n, 8083) && !group.serves(n, 8080), "{n}");
        let servers = group.servers(n);
        assert_eq!(servers.len(), SERVERS.len(), "{servers:?}");
        assert_ne!(group.state(n, SERVERS[0]), "maint");
    }

    // etcd loses its tokens when its process ends.
    group.restart_etcd();
    let published = group.publish(1, &config(8082, &SERVERS), "0s");
    assert!(published.status.success(), "{published:?}");
    assert!(group.serves(0, 8082) && group.serves(1, 8082));

    // A change to etcd's users invalidates JSON web tokens.
    group.create_token_keys();
    group.restart_etcd();
    group.etcdctl_as_root(&["--user", "root:root", "user", "add", "other:other"]);
    let published = group.publish(1, &config(8084, &SERVERS), "0s");
    assert!(published.status.success(), "{published:?}");
    assert!(group.serves(0, 8084) && group.serves(1, 8084));
}
