//! Tests `[notify.NAME]`: a program, a web request and an email report failed servers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use super::keeper::wait_until;
use super::receiver::Receiver;
use super::tls::Authority;
use super::{Proxy, configuration, free_address};

/// The texts that a fake server has received, one for each connection.
type ReceivedTexts = Arc<Mutex<Vec<String>>>;

/// Starts a server that runs `dialogue` on each connection. Returns its address, and the received texts.
fn serve(
    dialogue: fn(std::net::TcpStream) -> std::io::Result<String>,
) -> (SocketAddr, ReceivedTexts) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let received = ReceivedTexts::default();
    let texts = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(text) = dialogue(stream) {
                texts.lock().expect("lock poisoned").push(text);
            }
        }
    });
    (address, received)
}

/// Receives one email over SMTP.
fn receive_mail(mut stream: std::net::TcpStream) -> std::io::Result<String> {
    stream.write_all(b"220 ready\r\n")?;
    let mut reader = BufReader::new(stream);
    let (mut mail, mut in_data) = (String::new(), false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(mail);
        }
        mail.push_str(&line);
        let reply: &[u8] = match line.trim_end() {
            "." if in_data => {
                in_data = false;
                b"250 accepted\r\n"
            }
            _ if in_data => continue,
            "DATA" => {
                in_data = true;
                b"354 go on\r\n"
            }
            "QUIT" => {
                reader.get_mut().write_all(b"221 bye\r\n")?;
                return Ok(mail);
            }
            hello if hello.starts_with("EHLO") => b"250-here\r\n250 8BITMIME\r\n",
            _ => b"250 ok\r\n",
        };
        reader.get_mut().write_all(reply)?;
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "three receivers of the same events")]
fn failed_servers_are_reported_by_program_request_and_email() {
    if !weir_testing::require_root() {
        return;
    }
    let receiver = Receiver::start();
    let webhook = receiver.address;
    let (relay, mails) = serve(receive_mail);
    let listeners = [free_address(), free_address()]
        .map(|address| TcpListener::bind(address).expect("bind a listener"));
    let servers = listeners
        .each_ref()
        .map(|listener| listener.local_addr().expect("get local address"));
    let proxy = Proxy::start("tcp", &servers, "");
    let file = proxy.directory.join("changes");
    let extra = format!(
        "\n[pool.p.check]\nkind = \"tcp\"\ninterval = \"100ms\"\nfall = 1\nrise = 1\n\n\
         [notify.all]\nstates = [\"down\"]\ncommand = [\"/bin/sh\", \"-c\", \"cat >> {}; id -un >> {0}\"]\nuser = \
         \"root\"\nwebhook = \"http://{webhook}/hook?x=1\"\nmail = [\"ops@example.com\"]\nmail_server = \"{relay}\"\n\
         [notify.other]\npools = [\"p\"]\nstates = [\"starting\"]\nwebhook = \"http://{webhook}/other\"\n",
        file.display()
    );
    proxy.reload(&configuration(proxy.listen, "tcp", &servers, &extra));
    let states = || {
        let status = proxy.status();
        let servers = status["services"][0]["servers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        servers
            .iter()
            .map(|server| server["state"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    wait_until("the servers are up", || states() == ["up", "up"]);
    drop(listeners);
    wait_until("the webhook request has arrived", || {
        !receiver.received().is_empty()
    });
    wait_until("the mail has arrived", || {
        !mails.lock().expect("lock poisoned").is_empty()
    });
    wait_until("the program has written its file", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with("root\n"))
    });

    let requests = receiver.received();
    assert!(
        requests[0].head.starts_with("POST /hook?x=1 HTTP/1.1\r\n"),
        "{:?}",
        requests[0]
    );
    let body: serde_json::Value = serde_json::from_slice(&requests[0].body).expect("parse JSON");
    assert_eq!(body["notify"], "all");
    let changes = body["changes"].as_array().expect("not an array");
    let find_change = |server: SocketAddr| {
        let server = server.to_string();
        changes
            .iter()
            .find(|change| change["server"] == server.as_str())
    };
    let first = servers
        .iter()
        .find_map(|server| find_change(*server))
        .expect("no change of either server");
    assert_eq!(
        (&first["pool"], &first["from"], &first["to"]),
        (&"p".into(), &"up".into(), &"down".into())
    );
    assert!(
        requests
            .iter()
            .all(|request| !request.head.starts_with("POST /other")),
        "no request may be sent for other states"
    );

    let mails = mails.lock().expect("lock poisoned");
    for line in [
        "RCPT TO:<ops@example.com>\r\n",
        "To: ops@example.com\r\n",
        "pool p server ",
        ": up -> down (",
    ] {
        assert!(mails[0].contains(line), "{line} in {}", mails[0]);
    }
    let text = fs::read_to_string(&file).expect("read file");
    assert!(
        text.contains("pool p server ") && text.contains(": up -> down ("),
        "{text}"
    );
}

#[test]
fn check_reports_invalid_notifications() {
    let proxy = Proxy::start("tcp", &[free_address()], "");
    let invalid_file = proxy.directory.join("invalid.toml");
    let extra = "[notify.a]\npools = [\"q\"]\nstates = [\"dwn\"]\n[notify.b]\n\
         webhook = \"ftp://h/\"\nmail = [\"a b\"]\n";
    let text = configuration(proxy.listen, "tcp", &[free_address()], extra);
    fs::write(&invalid_file, text).expect("write file");
    let (succeeded, output) =
        proxy.weir(&["check", "-c", invalid_file.to_str().expect("not UTF-8")]);
    assert!(!succeeded);
    for part in [
        "pool `q` does not exist",
        "\"dwn\"",
        "notify a has no receiver",
        "the URL must begin with `http://` or `https://`",
        "`a b` is not an email address",
    ] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
}

/// The web server is another Weir, which terminates TLS.
#[test]
fn https_webhook_is_sent_only_to_a_verified_server() {
    let receiver = Receiver::start();
    let webhook = receiver.address;
    let authority = Authority::new("webhook");
    authority.sign("hook", "IP:127.0.0.1", 30);
    let tls = format!("tls = {{ certificates = \"{}\" }}\n", authority.certs());
    let tls_proxy = Proxy::start("http", &[webhook], &tls);
    let listener = TcpListener::bind(free_address()).expect("bind a listener");
    let server = listener.local_addr().expect("get local address");
    let proxy = Proxy::start("tcp", &[server], "");
    let notify = |name: &str, ca: &str| {
        format!(
            "[notify.{name}]\nstates = [\"down\"]\nwebhook = \"https://{}/{name}\"\n{ca}\n",
            tls_proxy.listen
        )
    };
    let ca = format!("webhook_ca = \"{}\"", authority.ca());
    let check = "\n[pool.p.check]\nkind = \"tcp\"\ninterval = \"100ms\"\nfall = 1\nrise = 1\n";
    let extra = format!("{check}{}{}", notify("unknown", ""), notify("known", &ca));
    proxy.reload(&configuration(proxy.listen, "tcp", &[server], &extra));
    wait_until("the server is up", || {
        proxy.status()["services"][0]["servers"][0]["state"] == "up"
    });
    drop(listener);
    wait_until("the webhook request has arrived", || {
        !receiver.received().is_empty()
    });
    wait_until("the log reports the failed notification", || {
        proxy.log().contains("failed to send a notification")
    });
    let requests = receiver.received();
    assert!(
        requests.len() == 1 && requests[0].head.starts_with("POST /known "),
        "{requests:?}"
    );
}
