//! Tests the import of nginx's `auth_request`, and of lists of cipher suites in nginx and haproxy.

use weir_import::{EmptyEnvironment, Imported, haproxy, nginx};

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import_nginx(lines: &str) -> Imported {
    let text = format!("upstream app {{ server 10.0.0.5; }}\nserver {{\nlisten 80;\n{lines}\n}}\n");
    assert_valid(nginx("nginx.conf", &text, &EmptyEnvironment))
}

const AUTH: &str = "location = /auth {\ninternal;\nproxy_pass http://10.0.0.9:4180/oauth2/auth;\n\
    proxy_pass_request_body off;\nproxy_set_header Content-Length \"\";\nproxy_set_header X-Original-URI \
    $request_uri;\n}\n";

#[test]
fn auth_request_becomes_forward_auth_of_the_route() {
    let imported = import_nginx(&format!(
        "location / {{\nauth_request /auth;\nauth_request_set $user $upstream_http_x_auth_user;\nauth_request_set \
         $mail $upstream_http_x_mail;\nproxy_set_header X-User $user;\nproxy_set_header X-Mail $mail;\n\
         proxy_set_header \
         Host $host;\nproxy_pass http://app;\n}}\n{AUTH}"
    ));
    for part in [
        "path = \"/oauth2/auth\"",
        "\"X-User: x-auth-user\"",
        "\"X-Mail\"",
        "\"X-Original-URI: {path}\"",
        "10.0.0.9:4180",
    ] {
        assert!(imported.toml.contains(part), "{part}: {}", imported.toml);
    }
    assert!(imported.toml.contains("forward_auth"), "{}", imported.toml);
    assert!(imported.unguarded.is_empty(), "{:#?}", imported.unguarded);
    // The server block's `auth_request` applies to each location without `auth_request off`.
    let imported = import_nginx(&format!(
        "auth_request /auth;\nlocation / {{ proxy_pass http://app; }}\nlocation /a {{ proxy_pass http://app; }}\n\
         location /open {{ auth_request off; proxy_pass http://app; }}\n{AUTH}"
    ));
    assert_eq!(
        imported.toml.matches("forward_auth").count(),
        2,
        "{}",
        imported.toml
    );
}

#[test]
fn unsupported_auth_request_rejects_clients() {
    for auth in [
        "",
        "location = /auth { internal; return 204; }\n",
        "location = /auth { internal; proxy_set_header X-A $geoip_country; proxy_pass http://10.0.0.9; }\n",
    ] {
        let imported = import_nginx(&format!(
            "location / {{ auth_request /auth; proxy_pass http://app; }}\n{auth}"
        ));
        assert!(!imported.toml.contains("forward_auth"), "{}", imported.toml);
        assert!(imported.toml.contains("status = 403"), "{}", imported.toml);
    }
}

#[test]
fn lists_of_named_suites_and_groups_are_imported() {
    let import_tls = |lines: &str| {
        let text = format!(
            "server {{\nlisten 443 ssl;\nssl_certificate /c.pem;\nssl_certificate_key /c.pem;\n{lines}\nlocation / {{ \
             proxy_pass http://10.0.0.5; }}\n}}\n"
        );
        assert_valid(nginx("nginx.conf", &text, &EmptyEnvironment))
    };
    let imported = import_tls(
        "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256;\nssl_ecdh_curve X25519:prime256v1;",
    );
    for part in [
        "ciphers = [\"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]",
        "groups = [\"X25519\", \"secp256r1\"]",
    ] {
        assert!(imported.toml.contains(part), "{part}: {}", imported.toml);
    }
    let notes = format!("{:?}", imported.notes);
    assert!(notes.contains("DHE-RSA-AES128-GCM-SHA256"), "{notes}");
    let imported = import_tls("ssl_ciphers HIGH:!aNULL:!MD5;");
    assert!(!imported.toml.contains("ciphers ="), "{}", imported.toml);
    let text = "global\n ssl-default-bind-ciphers ECDHE-RSA-AES256-GCM-SHA384\n ssl-default-bind-ciphersuites \
                TLS_AES_256_GCM_SHA384\ndefaults\n mode http\nlisten a\n bind :443 ssl crt /c.pem\n server s \
                10.0.0.5:80\nlisten b\n bind :444 ssl crt /c.pem ciphers ECDHE-RSA-AES128-GCM-SHA256 curves P-384\n \
                server s 10.0.0.5:80\n";
    let imported = assert_valid(haproxy("haproxy.cfg", text, &EmptyEnvironment));
    let with_own_list = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\", \"TLS_AES_256_GCM_SHA384\"]";
    for part in [
        "[\"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\", \"TLS_AES_256_GCM_SHA384\"]",
        with_own_list,
        "groups = [\"secp384r1\"]",
    ] {
        assert!(imported.toml.contains(part), "{part}: {}", imported.toml);
    }
}
