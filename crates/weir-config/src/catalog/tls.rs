//! TLS of proxy services, towards clients and towards servers.

use super::*;
use weir_model::{ClientAuth, SniHost, TlsVersion};

fn versions() -> Choices {
    Choices {
        now: TlsVersion::ALL
            .iter()
            .map(|choice| choice.as_str())
            .collect(),
        known_as: &[("TLSv1.2", "1.2"), ("TLSv1.3", "1.3")],
        ..Choices::default()
    }
}

fn client_auths() -> Choices {
    Choices {
        now: ClientAuth::ALL
            .iter()
            .map(|choice| choice.as_str())
            .collect(),
        known_as: &[("on", "required")],
        ..Choices::default()
    }
}

fn sni_hosts() -> Choices {
    Choices {
        now: SniHost::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

const FILE: Kind = Kind::Words("the path of a file");

/// `tls` of a proxy service.
pub(crate) static SERVICE_TLS: Section = Section {
    path: "service.NAME.tls",
    page: "service-tls",
    purpose: "TLS with the clients of a `proxy` service. Certificates are read at start and at each `weir reload`, which drops no \
              connection; a bad one refuses the reload, and what was in force stays.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:443\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\ntls = { certificates = \"/etc/weir/certs\", minimum = \"1.3\" }\n",
    keys: &[
        Key::new(
            "certificates",
            Kind::Words("the path of a directory or a file"),
            Required,
            "A directory in which each `NAME.pem` holds chain and key, or `NAME.crt` and `NAME.key` do, or \
             `NAME/fullchain.pem` and `NAME/privkey.pem`; or one such file. The names inside decide which a client gets. \
             Beside each may stand an OCSP response to staple: `NAME.pem.ocsp`, `NAME.ocsp` or `NAME/ocsp.der`.",
            "certificates = \"/etc/weir/certs\"",
        )
        .known_as(&["certificate", "crt", "ssl_certificate", "cert"]),
        Key::new(
            "strict_sni",
            Kind::Flag,
            Default("false"),
            "A client that names no host, or one that no certificate is for, is refused. Else it gets the first certificate by \
             file name.",
            "strict_sni = true",
        ),
        Key::new(
            "minimum",
            Kind::OneOf(versions),
            Default("1.2"),
            "The oldest version of TLS that is spoken.",
            "minimum = \"1.3\"",
        )
        .known_as(&["ssl_min_ver", "ssl_protocols", "min_version"]),
        Key::new(
            "ticket_keys",
            Kind::List(&Kind::Secret),
            Absent("keys of this daemon's own, which change every six hours"),
            "What session tickets are sealed with: the first key seals, all of them open. Directors with the same keys, and the same \
             name and `client_ca` of the service, resume each other's sessions. Each key is a secret of 32 bytes or more. To \
             rotate, see [security.md](../security.md#session-ticket-keys).",
            "ticket_keys = [{ file = \"/etc/weir/ticket.key\" }]",
        )
        .known_as(&["tls_ticket_keys", "ssl_session_ticket_key"]),
        Key::new(
            "client_ca",
            FILE,
            Absent("clients are not asked for certificates"),
            "Certificates of the authorities, as PEM, one of which must have signed a client's.",
            "client_ca = \"/etc/weir/clients.pem\"",
        )
        .known_as(&["ca_file", "ssl_client_certificate"]),
        Key::new(
            "client_auth",
            Kind::OneOf(client_auths),
            Default("required"),
            "Whether a client without a certificate is served all the same, where `client_ca` is there. One with a bad \
             certificate never is.",
            "client_auth = \"optional\"",
        )
        .known_as(&["verify", "ssl_verify_client"]),
        Key::new(
            "sni_host",
            Kind::OneOf(sni_hosts),
            Default("client_auth"),
            "Which requests of an `http` service are answered with 421 because of their host (`Host`, `:authority`). \
             With `client_auth`: a host that is in the certificates of another service which requires client \
             certificates of another authority than this one, and not, or less exactly, in this service's own. With \
             `same`: every host but the name that the client sent in its handshake (SNI). With `ignore`: none.",
            "sni_host = \"same\"",
        ),
    ],
};

/// `tls` of a pool.
pub(crate) static SERVER_TLS: Section = Section {
    path: "pool.NAME.tls",
    page: "pool-tls",
    purpose: "TLS with the servers of a pool, by `proxy` services. A server whose certificate is not for its name, or not from a \
              known authority, counts as one that cannot be reached.",
    example: "[pool.web]\nservers = [\"10.0.0.5:443\"]\ntls = { ca = \"/etc/weir/internal-ca.pem\", server_name = \
              \"web.internal\" }\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \
              \"http\"\npool = \"web\"\n",
    keys: &[
        Key::new(
            "verify",
            Kind::Flag,
            Default("true"),
            "Whether the server's certificate is verified. Without, anybody on the way can read and change everything.",
            "verify = false",
        )
        .known_as(&["proxy_ssl_verify"]),
        Key::new(
            "ca",
            FILE,
            Absent("the system's, `/etc/ssl/certs/ca-certificates.crt`"),
            "Certificates of the authorities, as PEM, one of which must have signed a server's. A server's own certificate among them is \
             accepted as it is, self-signed or not.",
            "ca = \"/etc/weir/internal-ca.pem\"",
        )
        .known_as(&["ca_file", "proxy_ssl_trusted_certificate"]),
        Key::new(
            "server_name",
            Kind::Words("a host"),
            Absent("the server's address, and no name is sent"),
            "The name that is sent (SNI) and that the certificate must be for.",
            "server_name = \"web.internal\"",
        )
        .known_as(&["sni", "verifyhost", "proxy_ssl_name"]),
        Key::new(
            "certificate",
            FILE,
            Absent("none"),
            "Chain and key, as PEM in one file, for servers that ask for a certificate.",
            "certificate = \"/etc/weir/client.pem\"",
        )
        .known_as(&["crt", "proxy_ssl_certificate"]),
        Key::new(
            "minimum",
            Kind::OneOf(versions),
            Default("1.2"),
            "The oldest version of TLS that is spoken.",
            "minimum = \"1.3\"",
        )
        .known_as(&["ssl_min_ver", "proxy_ssl_protocols", "min_version"]),
    ],
};

/// Where a secret is kept, in place of its text.
pub(crate) static SECRET: Section = Section {
    path: "secret",
    page: "secret",
    purpose: "",
    example: "",
    keys: &[
        Key::new(
            "file",
            FILE,
            Absent("not in a file"),
            "A file that holds the secret and nothing else; a line feed at its end is not part of it.",
            "file = \"/etc/weir/key\"",
        ),
        Key::new(
            "env",
            Kind::Words("the name of a variable"),
            Absent("not in the environment"),
            "A variable of the daemon's environment.",
            "env = \"WEIR_KEY\"",
        ),
        Key::new(
            "credential",
            Kind::Words("the name of a credential"),
            Absent("not in a credential"),
            "A credential of systemd's unit (`LoadCredential=`).",
            "credential = \"weir-key\"",
        ),
    ],
};
