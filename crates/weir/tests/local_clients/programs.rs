//! Tests unmodified real programs as local clients.
//!
//! Each program runs in the service's cgroup and connects to the VIP.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use super::world::{Family, privileged, sh, wait_for};
use super::{Fixture, TIMEOUT, VIP, VIP6};

/// A Go program. Its runtime calls connect() without libc and tries the addresses of both families (RFC 8305).
const GO: &str = r#"package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", os.Args[1])
	}}
	transport := &http.Transport{DialContext: (&net.Dialer{Resolver: resolver}).DialContext, DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	for i := 0; i < 4; i++ {
		response, err := client.Get("http://web.example:8090/")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(string(body))
	}
}
"#;

/// A Java program, run from source. It uses IPv6 sockets and connects to IPv4-mapped addresses.
const JAVA: &str = r#"import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Client {
    public static void main(String[] addresses) throws Exception {
        for (String address : addresses) {
            HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create(address)).build();
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body().trim());
        }
    }
}
"#;

impl Fixture {
    fn spawn(&mut self, host: &str, line: &str) {
        let mut command = self.world.command(host, "sh");
        command
            .args(["-c", &format!("exec {line}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child: Child = command.spawn().expect("start sh");
        self.world.kill_on_drop(child);
    }

    /// Runs a shell command in the cgroup.
    fn run_in_cgroup(&self, line: &str) -> Output {
        let line = format!("echo $$ >{}/cgroup.procs; {line}", self.cgroup.display());
        let mut command = self.world.command("director", "sh");
        command.args(["-c", &line]).output().expect("run sh")
    }

    /// Runs a shell command in the cgroup and asserts that it succeeds. Returns its output.
    fn output_of(&self, line: &str) -> String {
        let output = self.run_in_cgroup(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn wait_for_output(&self, line: &str, expected: &str) {
        let mut last = None;
        wait_for(line, TIMEOUT, || {
            let output = self.run_in_cgroup(line);
            let is_expected = String::from_utf8_lossy(&output.stdout).trim() == expected;
            last = Some(output);
            is_expected
        });
    }

    /// Returns the configuration of a service with this port on all servers.
    fn service(&self, name: &str, listen: &str, port: u16, family: Family) -> String {
        let server = |n| match family {
            Family::V4 => format!("\"{}:{port}\"", family.server(n)),
            Family::V6 => format!("\"[{}]:{port}\"", family.server(n)),
        };
        format!(
            "[pool.{name}]\nscheduler = \"rr\"\nservers = [{}, {}]\n\
             [service.{name}]\nlisten = [{listen}]\nforward = \"socket\"\ncgroup = \"{}\"\npool = \"{name}\"\n",
            server(0),
            server(1),
            self.cgroup.display()
        )
    }
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
#[expect(clippy::too_many_lines, reason = "one step for each program")]
fn connections_of_curl_redis_dig_go_and_nginx_are_balanced() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    for host in ["server0", "server1"] {
        fixture.spawn(
            host,
            "redis-server --port 6379 --save '' --protected-mode no --dir /tmp",
        );
        let name = format!("--address=/web.example/{VIP} --address=/web.example/{VIP6}");
        let text = format!("--txt-record=who.example,{host}");
        fixture.spawn(
            host,
            &format!(
                "dnsmasq -k -p 5353 --no-resolv --no-hosts --user=root --pid-file= {name} {text}"
            ),
        );
    }
    let text = [
        fixture.service("web", &format!("\"{VIP}:8090\""), 8090, Family::V4),
        fixture.service("six", &format!("\"[{VIP6}]:8090\""), 8090, Family::V6),
        fixture.service("redis", &format!("\"{VIP}:6379\""), 6379, Family::V4),
        fixture.service(
            "dns",
            &format!("\"udp/{VIP}:53\", \"{VIP}:53\""),
            5353,
            Family::V4,
        ),
    ];
    fixture.world.start_daemon(&text.concat());

    let curl = |to: &str| fixture.output_of(&format!("curl -sS -m 5 http://{to}:8090/"));
    assert_eq!(
        sorted(&format!("{}\n{}", curl(VIP), curl(VIP))),
        ["server0", "server1"]
    );
    let v6_host = format!("'[{VIP6}]'");
    assert_eq!(
        sorted(&format!("{}\n{}", curl(&v6_host), curl(&v6_host))),
        ["server0", "server1"]
    );
    // The name has addresses of both families.
    let by_name = format!(
        "curl -sS -m 5 --resolve 'web.example:8090:[{VIP6}],{VIP}' http://web.example:8090/"
    );
    assert!(fixture.output_of(&by_name).starts_with("server"));

    fixture.wait_for_output(&format!("redis-cli -h {VIP} ping"), "PONG");
    fixture.wait_for_output(&format!("redis-cli -h {VIP} set key value"), "OK");
    // With round robin, consecutive requests reach different servers, only one of which has the key.
    let keys = [(); 2].map(|()| fixture.output_of(&format!("redis-cli -h {VIP} dbsize")));
    assert_eq!(sorted(&keys.join("\n")), ["0", "1"]);

    for transport in ["+notcp", "+tcp"] {
        let dig = format!("dig +short +tries=1 {transport} @{VIP} who.example TXT");
        fixture.wait_for_output(&format!("{dig} | tr -d '\"01'"), "server");
        let names = [(); 2].map(|()| fixture.output_of(&dig));
        assert_eq!(
            sorted(&names.join("\n")),
            ["\"server0\"", "\"server1\""],
            "{transport}"
        );
    }

    let source: PathBuf = fixture.world.path("main.go");
    fs::write(&source, GO).expect("write the file");
    let program = fixture.world.path("client");
    sh(&format!(
        "PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod GOCACHE=/var/tmp/weir-test-go-cache go build -o {} {}",
        program.display(),
        source.display()
    ));
    let names = fixture.output_of(&format!("{} {VIP}:53", program.display()));
    assert_eq!(sorted(&names), ["server0", "server0", "server1", "server1"]);

    assert_nginx_connections_are_balanced(&mut fixture);
    wait_for("closed connections of six, redis and dns", TIMEOUT, || {
        ["six", "redis", "dns"]
            .iter()
            .all(|service| fixture.total_connections(service) == 0)
    });
}

/// Runs only with WEIR_SOAK: it requires a JDK (default-jdk-headless), which is too large for the regular test run.
#[test]
fn java_connections_are_balanced_soak() {
    if !privileged() || std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let text = [
        fixture.service("web", &format!("\"{VIP}:8090\""), 8090, Family::V4),
        fixture.service("six", &format!("\"[{VIP6}]:8090\""), 8090, Family::V6),
    ];
    fixture.world.start_daemon(&text.concat());
    let source = fixture.world.path("Client.java");
    fs::write(&source, JAVA).expect("write the file");
    for address in [
        format!("http://{VIP}:8090/"),
        format!("http://[{VIP6}]:8090/"),
    ] {
        let program = format!(
            "java -XX:TieredStopAtLevel=1 {} '{address}' '{address}' '{address}' '{address}'",
            source.display()
        );
        let names = fixture.output_of(&program);
        assert_eq!(sorted(&names), ["server0", "server0", "server1", "server1"]);
    }
}

/// Asserts that Weir balances the connections of an nginx that runs in the cgroup as a proxy to the VIP.
fn assert_nginx_connections_are_balanced(fixture: &mut Fixture) {
    let directory = fixture.world.path("nginx-client");
    fs::create_dir(&directory).expect("create a directory");
    let file = directory.join("nginx.conf");
    let temp_paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {}/{kind}; ", directory.display()))
        .collect();
    fs::write(
        &file,
        format!(
            "daemon off; user root; pid {0}/pid; error_log {0}/error.log;\nevents {{}}\n\
             http {{ {temp_paths} access_log off; server {{ listen 127.0.0.1:9000; location / {{ proxy_pass \
             http://{VIP}:8090; }} }} }}\n",
            directory.display()
        ),
    )
    .expect("write the file");
    let line = format!(
        "sh -c 'echo $$ >{}/cgroup.procs; exec nginx -p {} -c {}'",
        fixture.cgroup.display(),
        directory.display(),
        file.display()
    );
    fixture.spawn("director", &line);
    let fetch = "curl -sS -m 5 http://127.0.0.1:9000/";
    wait_for("nginx to respond", TIMEOUT, || {
        fixture.run_in_cgroup(fetch).status.success()
    });
    let names = [(); 4].map(|()| fixture.output_of(fetch));
    assert_eq!(
        sorted(&names.join("\n")),
        ["server0", "server0", "server1", "server1"]
    );
}

#[test]
fn psql_connections_are_balanced() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let entries = fs::read_dir("/usr/lib/postgresql")
        .expect("find PostgreSQL (run tools/install-deps.sh to install it)");
    let mut versions: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let bin_dir = versions
        .last()
        .expect("at least one version of PostgreSQL should be installed")
        .join("bin");
    let bin_dir = bin_dir.display();
    let as_postgres = "setpriv --reuid postgres --regid postgres --clear-groups --";
    // server1 uses a copy of server0's data directory.
    let first = fixture.world.path("data-0");
    let (first, second) = (
        first.display().to_string(),
        fixture.world.path("data-1").display().to_string(),
    );
    sh(&format!(
        "chmod 711 {0}; install -d -o postgres -m 700 {first}; {as_postgres} {bin_dir}/initdb -D {first} -A trust \
         --no-sync --locale=C >/dev/null; echo 'host all all 10.71.0.0/24 trust' >>{first}/pg_hba.conf; \
         cp -a {first} {second}",
        fixture.world.path(".").display()
    ));
    for (host, data) in [("server0", &first), ("server1", &second)] {
        let options = format!("-h 0.0.0.0 -k {data} -c fsync=off -c cluster_name={host}");
        fixture.spawn(
            host,
            &format!("{as_postgres} {bin_dir}/postgres -D {data} {options}"),
        );
    }
    let text = fixture.service("db", &format!("\"{VIP}:5432\""), 5432, Family::V4);
    fixture.world.start_daemon(&text);
    let psql = format!("psql -h {VIP} -U postgres -Atc 'show cluster_name'");
    wait_for("connections to both servers", TIMEOUT * 3, || {
        let names = [(); 2].map(|()| fixture.run_in_cgroup(&psql).stdout);
        let names = names.map(|name| String::from_utf8_lossy(&name).trim().to_owned());
        sorted(&names.join("\n")) == ["server0", "server1"]
    });
}
