//! Compares the output and the notes for rare lines in other programs' files with snapshots.

mod odd {
    pub(super) const HAPROXY: &str = "\
defaults
 mode http
 timeout client 30s
frontend web
 bind 192.0.2.1:80,192.0.2.1:443 ssl crt /c.pem verify required ca-file /ca.pem ssl-min-ver TLSv1.3
 bind :81 v4v6 name x defer-accept
 http-request deny deny_status 999
 http-request redirect code 301
 http-request redirect location /new code 200
 http-request redirect location /%[path] code 301
 http-request return status 200 content-type text/html string x
 http-request return status 200 string x
 use_backend app unless { path_beg /x }
 use_backend app sometimes { path_beg /x }
 use_backend app if { path,lower -m beg /x }
 use_backend app if { path_beg -f /list }
 default_backend app
backend app
 balance roundrobin
 source 192.0.2.9
 retries many
 retry-on all-retryable-errors
 retry-on 500 junk-response conn-failure something
 option forwardfor except 10.0.0.0/8 if-none
 option httpclose
 cookie
 cookie SRV insert indirect nocache domain a.example
 option httpchk
 http-check send meth HEAD uri /up ver HTTP/1.0 hdr Host x hdr X-A b body data frag y
 http-check expect rstatus ^(2..|3[0-9][0-9]|404)$
 server-template s 2 10.0.0.6:80
 server-template
 server a 10.0.0.5:80 check addr 10.0.0.7 port 81 inter 1s fall 4 rise 5 weight 7 maxconn 9 no-sslv3 disabled enabled
 server b unix@/run/b.sock
 server c 10.0.0.5:+1
 server d ipv4@10.0.0.8:80 check no-check backup no-backup agent-check agent-port 99 agent-send up
 server e ipv6@[fd00::1]:80 ssl verify none sni req.hdr(host) ssl-min-ver TLSv1.1
 server f fd@3
 server g 10.0.0.9:80 agent-check check-send-proxy check ssl no-ssl send-proxy no-send-proxy strange
backend texts
 option tcp-check
 option smtpchk
 option mysql-check user haproxy
 http-check expect rstatus a.*
 http-check expect string Up
 server a name.internal:80 check addr other.internal
";

    pub(super) const KEEPALIVED: &str = "\
global_defs extra {
  router_id x
}
global_defs {
  lvs_timeouts tcp 900 sctp 3
  lvs_sync_daemon eth0
}
virtual_server_group {
}
virtual_server_group g {
  192.0.2.1 80
  fwmark 7 inet7
  fwmark x
}
virtual_server_group g {
  192.0.2.2 80
}
virtual_server group g {
  lb_algo wlc
  lb_kind TUN
  real_server 10.0.0.1 80 {
    weight 70000
    lb_kind TUN type gue
    lb_kind TUN type ipip nocsum port 80
    UDP_CHECK {
      payload f
      require_reply 0 zz
    }
  }
  real_server 10.0.0.2 80 {
    HTTP_GET {
      url {
        path /
        status_code abc
        regex
      }
      connect_timeout x
    }
  }
  real_server 10.0.0.3 80 {
    DNS_CHECK {
      type MXX
      name a.example
    }
  }
  real_server 10.0.0.4 80 {
    MISC_CHECK {
      misc_path
    }
  }
  sorry_server 10.0.0.1 80
  quorum 9999999
}
virtual_server group {
}
virtual_server fwmark {
}
vrrp_sync_group {
}
vrrp_instance {
}
vrrp_instance v {
  state MASTERX
  interface lo
  version 5
  virtual_router_id 7
  virtual_ipaddress {
    here
    192.0.2.9/99
  }
  track_interface {
    eth0 weight x
    eth1 weight 3 later
  }
  notify_master
}
";

    pub(super) const LDIRECTORD: &str = "\
checktimeout=0
checkcount=0
emailalertfreq=x
emailalertstatus=some
email alert
callback=/x
quiescent=maybe
fallback=
unknown=7
virtual=192.0.2.1:80
\treal=10.0.0.1:80 gate 1
\treal=10.0.0.2->10.0.0.3:80 gate
\treal=10.0.0.1->10.9.0.0:80 gate
\treal=fd00::1->fd00::9:80 gate
\thttpmethod=PUT
\tschedflags=
\tscheduler=WRR
\tcheckcount=0
\tops=yes
\tnetmask=255.0.255.0
\tpersistent=0
\tfallback6=[::1]:80
\tservice=http
\tcheckport=0
\tnegotiatetimeout=
virtual=[2001:db8::1]:80
\treal=10.0.0.1:80 gate
virtual6=[2001:db8::2]:80
\treal=[fd00::1]:80 gate
\tservice=dns
\trequest=\"a.example\"
\tvirtualhost=x
";

    pub(super) const NGINX: &str = "\
limit_req_zone $binary_remote_addr zone=a:1g rate=120r/m;
limit_req_zone $host zone=b:1m rate=7r/m;
upstream app { server 10.0.0.5:80; server 10.0.0.6:80 weight=3 max_fails=0 down; }
server {
  listen 80;
  limit_req zone=a burst=5;
  limit_req zone=b;
  location /a { return 999; }
  location /b { return 200 text; }
  location /c { return 301 https://a.example$request_uri; }
  location /d { rewrite ^/d/(.*)$ /$1 break; proxy_pass http://app; }
  location /e { rewrite ^/e; proxy_pass http://app; }
  location /f { rewrite ^/f(.*)$ /x break; rewrite ^/f(.*)$ /y break; proxy_pass http://app; }
  location /g { add_header X; proxy_set_header; proxy_hide_header; proxy_pass http://app; }
  location /h { proxy_next_upstream error timeout http_503 non_idempotent strange; proxy_pass http://app; }
  location /j { proxy_next_upstream_tries 0; proxy_pass http://app; }
  location /i { proxy_ssl_verify off; proxy_pass https://app; }
  location / { proxy_pass http://app; }
}
";
}

use weir_import::{EmptyEnvironment, Imported, haproxy, keepalived, ldirectord, nginx};

#[test]
fn odd_lines_are_imported_or_noted() {
    let environment = &EmptyEnvironment;
    let text =
        |imported: Imported| format!("{}\n---\n{}\n", imported.toml, imported.notes.join("\n"));
    for (name, imported) in [
        ("haproxy", haproxy("haproxy.cfg", odd::HAPROXY, environment)),
        (
            "keepalived",
            keepalived("keepalived.conf", odd::KEEPALIVED, environment),
        ),
        (
            "ldirectord",
            ldirectord("ldirectord.cf", odd::LDIRECTORD, environment),
        ),
        ("nginx", nginx("nginx.conf", odd::NGINX, environment)),
    ] {
        let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
        assert!(
            parsed.is_ok(),
            "{name}: {:?}\n{}",
            parsed.err(),
            imported.toml
        );
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name, text(imported));
        });
    }
}
