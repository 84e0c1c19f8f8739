//! Rows about server blocks and the settings of services.

use super::assert_rows;

#[test]
fn lines_without_effect_in_a_server_block_are_remarks() {
    assert_rows(LINES_WITHOUT_EFFECT_IN_A_SERVER_BLOCK_ARE_REMARKS);
}

const LINES_WITHOUT_EFFECT_IN_A_SERVER_BLOCK_ARE_REMARKS: &str = r#"
location / { proxy_pass http://a; }
proxy_intercept_errors off; gzip off; autoindex off; ssl off; ssl_verify_client off; userid off;
=> service.nginx-80: pool = "a"
=> remark 3: this is nginx's default

location / { proxy_pass http://a; }
proxy_intercept_errors on;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
autoindex on;
=> service.nginx-80: pool = "a"
=> lost 3: a route's `files` does not list directories

location / { proxy_pass http://a; }
root /srv; index i.html;
try_files $uri =404;
=> service.nginx-80: pool = "a"
=> lost 3: no imported route with `files` or a fixed response
=> lost 4: no imported route with `files` or a fixed response

return 204;
root /srv;
index i.html;
autoindex on;
try_files $uri =404;
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> remark 3: nginx responds before it selects a file
=> remark 4: nginx responds before it selects a file
=> remark 5: nginx responds before it selects a file
=> remark 6: nginx responds before it selects a file

rewrite ^ https://b.example$request_uri? permanent;
root /srv;
index i.html;
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example{path}"; status = 301
=> remark 3: nginx responds before it selects a file
=> remark 4: nginx responds before it selects a file

rewrite ^/x$ https://b.example$request_uri? permanent;
root /srv;
index i.html;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv", index = ["i.html"] }
=> lost 2: a route rewrites a path only as the last step, lik

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; return 204;
client_max_body_size 1m; }
=> service.x: pool = "a"
=> route: host = "y"; status = 204
=> remark 4: nginx responds before it reads a body

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; location / { return 204; }
client_max_body_size 1m; }
=> service.x: pool = "a"
=> route: host = "y"; status = 204
=> lost 4: a service's `limits` has no such key, or counts di

location / { proxy_pass http://a; }
gzip_types text/css;
gzip_min_length 10;
gzip_vary on;
=> service.nginx-80: pool = "a"
=> remark 3: compression is off
=> remark 4: compression is off
=> remark 5: compression is off

location / { proxy_pass http://a; } gzip on;
gzip_types text/css;
gzip_min_length 10;
gzip_vary on;
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["text/html", "text/css"], minimum = 10
.. }
=> remark 5: `compression` has no such setting

gzip on;
server { listen 80; location / { proxy_pass http://a; }
gzip_vary on; }
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["text/html"], minimum = 20 }
=> remark 4: `compression` has no such setting

gzip on;
server { listen 80; location / { proxy_pass http://a; } gzip off;
gzip_vary on; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route to a pool uses it
=> remark 4: compression is off

location / { return 204; }
proxy_cookie_path / /x;
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> remark 3: the server block does not proxy any request to a s

location / { proxy_pass http://a; }
proxy_cookie_path / /x;
=> service.nginx-80: pool = "a"
=> lost 3: Weir does not rewrite responses this way

location / { if ($http_a = b) { proxy_pass http://a; } return 204; }
proxy_cookie_path / /x;
=> service.nginx-80: pool = "no-servers"
=> route: header = ["a: b"]; pool = "a"
=> route: status = 204
=> lost 3: Weir does not rewrite responses this way

location / { fastcgi_pass 127.0.0.1:9000; }
proxy_cookie_path / /x;
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: Weir supports only HTTP servers
=> lost 3: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_set_header X-A b; }
proxy_set_header X-B c;
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: b"]
=> remark 3: every location overrides it

location / { proxy_pass http://a; proxy_set_header X-A b; }
location /x { if ($http_a = b) { proxy_pass http://b; } return 204; }
proxy_set_header X-B $geoip_country;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; header = ["a: b"]; pool = "b"
=> route: path = "/x*"; status = 204
=> route: pool = "a"; set_header = ["X-A: b"]
=> lost 4: the value contains an unsupported variable or a na

location / { proxy_pass http://a; proxy_set_header X-A b; }
location /x { return 204; }
proxy_set_header X-B $geoip_country;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 204
=> route: pool = "a"; set_header = ["X-A: b"]
=> remark 4: every location overrides it

location / { proxy_pass http://a; }
proxy_set_header X-B $geoip_country;
=> service.nginx-80: pool = "a"
=> lost 3: the value contains an unsupported variable or a na

location / { proxy_pass http://a; add_header X-A b; }
add_header X-B c;
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]
=> remark 3: every location overrides it

location / { proxy_pass http://a; add_header X-A b; }
location /x { proxy_pass http://a; }
add_header X-B $geoip_country;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]
=> lost 4: the value contains an unsupported variable or a na

location / { proxy_pass http://a; add_header X-A b; }
location /x { add_header X-A b; location /x/y { add_header X-A b; return 204; } }
add_header X-B $geoip_country;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x/y*"; status = 204; add_response_header = ["X-A: b"]
=> route: path = "/x*"; status = 404
=> route: pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]
=> lost 3: it has no target that Weir supports; Weir responds
=> remark 4: every location overrides it

location /x { proxy_pass http://a; add_header X-A b; }
add_header X-B $geoip_country;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]
=> route: status = 404
=> lost 3: it does not apply to any imported route to a pool

location / { proxy_pass http://a; add_header X-A b; }
if ($http_a = b) { return 403; }
add_header X-B $geoip_country;
=> service.nginx-80: pool = "a"
=> route: header = ["a: b"]; status = 403
=> route: pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]

location / { proxy_pass http://a; }
ssl_trusted_certificate /ca.crt;
=> service.nginx-80: pool = "a"
=> remark 3: neither client certificates nor OCSP stapling is u

location / { proxy_pass http://a; } ssl_verify_client off;
ssl_trusted_certificate /ca.crt;
=> service.nginx-80: pool = "a"
=> remark 2: this is nginx's default
=> remark 3: neither client certificates nor OCSP stapling is u

location / { proxy_pass http://a; } ssl_verify_client on;
ssl_trusted_certificate /ca.crt;
=> service.nginx-80: pool = "a"
=> unguarded 2: a service's `tls` has no such key
=> unguarded 3: Weir has no such setting

ssl_verify_client optional;
server { listen 80; location / { proxy_pass http://a; }
ssl_trusted_certificate /ca.crt; }
=> service.nginx-80: pool = "a"
=> remark 2: no server block uses TLS
=> unguarded 4: Weir has no such setting

location / { proxy_pass http://a; }
real_ip_header X-Real-IP;
real_ip_recursive on;
=> service.nginx-80: pool = "a"
=> remark 3: nginx trusts no proxy without `set_real_ip_from`
=> remark 4: nginx trusts no proxy without `set_real_ip_from`

location / { proxy_pass http://a; } set_real_ip_from 10.0.0.1;
real_ip_header proxy_protocol;
real_ip_recursive on;
=> service.nginx-80: pool = "a"; trusted = ["10.0.0.1"]
=> lost 3: a service's `client_ip_header` is a header field t
=> lost 4: a service's `client_ip_header` is a header field t

server { listen 443 ssl; server_name x; ssl_certificate /c.crt; ssl_certificate_key /c.key; location / {
proxy_pass http://a; } ssl_protocols TLSv1.3; }
server { listen 443 ssl; server_name y; ssl_certificate /c.crt; ssl_certificate_key /c.key; location / {
proxy_pass http://a; }
ssl_protocols TLSv1.2; }
=> service.x-tls: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt", minimum = "1.3" }
=> route: host = "y"; pool = "a"
=> remark 2: Weir finds the key by the name of the certificate
=> lost 4: a service's `tls` has no such key
=> remark 6: the first server block for the address sets it

location / { proxy_pass http://a; }
userid_name x;
userid_service 1;
=> service.nginx-80: pool = "a"
=> remark 3: `userid` is off
=> remark 4: `userid` is off

location / { proxy_pass http://a; } userid off;
userid_name x;
userid_service 1;
=> service.nginx-80: pool = "a"
=> remark 2: this is nginx's default
=> remark 3: `userid` is off
=> remark 4: `userid` is off

location / { proxy_pass http://a; } userid on;
userid_name x;
userid_service 1;
=> service.nginx-80: pool = "a"
=> route: not = { cookie = ["x"] }; pool = "a"; add_response_header = ["Set-Cookie: x={request_id}; Path=/"]
=> remark 2: the value is Weir's identifier of the request, in
=> lost 4: weir.toml has no equivalent

location / { proxy_pass http://a; }
unknown_directive x;
=> service.nginx-80: pool = "a"
=> lost 3: weir.toml has no equivalent

rewrite ^/x/(.*)$ /y/$1 last;
root /srv;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "next"
=> lost 3: no imported route with `files` or a fixed response

location / { proxy_pass ftp://x; }
proxy_set_header X-B c;
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: the target is not an http or https URL
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 3: it does not apply to any imported route to a pool

location / { proxy_pass ftp://x; proxy_set_header X-A b; }
proxy_set_header X-B c;
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: the target is not an http or https URL
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: it does not apply to any imported route to a pool
=> remark 3: every location overrides it

location / { if ($http_a = b) { proxy_pass ftp://x; } return 204; }
proxy_set_header X-B c;
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> lost 2: the target is not an http or https URL
=> lost 2: the block contains no action that Weir supports
=> lost 3: it does not apply to any imported route to a pool

location / { proxy_pass ftp://x; }
add_header X-B c always;
=> service.nginx-80: pool = "no-servers"
=> route: status = 503; add_response_header = ["X-B: c"]
=> lost 2: the target is not an http or https URL
=> lost 2: it has no target that Weir supports; Weir responds
"#;

#[test]
fn server_block_without_address_is_reported() {
    assert_rows(SERVER_BLOCK_WITHOUT_ADDRESS_IS_REPORTED);
}

const SERVER_BLOCK_WITHOUT_ADDRESS_IS_REPORTED: &str = r#"
server { listen foo:x; location / { proxy_pass http://a; } }
=> lost 2: invalid port x
=> lost 2: Weir cannot listen on any address of this block

server { location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> remark 2: no listen: port 80 is used, as in nginx
"#;

#[test]
fn server_names_become_host_conditions_in_the_order_of_nginx() {
    assert_rows(SERVER_NAMES_BECOME_HOST_CONDITIONS_IN_THE_ORDER_OF_NGINX);
}

const SERVER_NAMES_BECOME_HOST_CONDITIONS_IN_THE_ORDER_OF_NGINX: &str = r#"
server { listen 80 default_server; server_name _ ""; location / { proxy_pass http://a; } }
server { listen 80; server_name ~^r[0-9]$ w.* *.b.example *.long.b.example B.example; location / { proxy_pass
http://b; } }
server { listen 80; server_name .C.example longer.example mail.*; location /x { proxy_pass http://b; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: host = "longer.example"; path = "/x*"; pool = "b"
=> route: host = "longer.example"; status = 404
=> route: host = "b.example"; pool = "b"
=> route: host = "c.example"; path = "/x*"; pool = "b"
=> route: host = "c.example"; status = 404
=> route: host = "*.long.b.example"; pool = "b"
=> route: host = "*.b.example"; pool = "b"
=> route: host = "*.c.example"; path = "/x*"; pool = "b"
=> route: host = "*.c.example"; status = 404
=> route: host = "mail.*"; path = "/x*"; pool = "b"
=> route: host = "mail.*"; status = 404
=> route: host = "w.*"; pool = "b"
=> route: host = "~^r[0-9]$"; pool = "b"

server { listen 80 default_server; location / { proxy_pass http://a; } }
server { listen 80; server_name ~^(\D+)\.Example$; location / { proxy_pass http://b; } }
=> service.nginx-80: pool = "a"
=> route: host = "~(?i)^(\\D+)\\.Example$"; pool = "b"

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y x; location / { proxy_pass http://b; } }
server { listen 80; server_name y z; location / { return 204; } }
=> service.x: pool = "a"
=> route: host = "y"; pool = "b"
=> route: host = "z"; status = 204

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name _; location / { proxy_pass http://b; } }
=> service.x: pool = "a"
=> lost 3: the server block has no name that a route can matc

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y www.y; if ($host = www.y) { return 301 http://y$request_uri; } location / {
proxy_pass http://b; } }
=> service.x: pool = "a"
=> route: host = "www.y"; redirect = "http://y{path}"; status = 301
=> route: host = "y"; pool = "b"

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name *.y; if ($host = www.y) { return 301 http://z$request_uri; } if ($host = www.z)
{ return 404; } location / { proxy_pass http://b; } }
=> service.x: pool = "a"
=> route: host = "www.y"; redirect = "http://z{path}"; status = 301
=> route: host = "*.y"; pool = "b"

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; location /b { if ($request_method = POST) { return 405; } proxy_pass
http://b; } }
=> service.x: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; path = "/b*"; method = ["POST"]; status = 405
=> route: host = "y"; path = "/b*"; pool = "b"
=> route: host = "y"; status = 404

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; location ~ ^/b { proxy_pass http://b; } }
=> service.x: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; path_regex = "^/b"; pool = "b"
=> route: host = "y"; status = 404

server { listen 80; server_name x; location /x { proxy_pass http://a; } }
server { listen 80; server_name y; location / { proxy_pass http://b; } }
=> service.x: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; pool = "b"
=> route: path = "/x*"; pool = "a"
=> route: status = 404

server { listen 80; server_name x; return 204; }
server { listen 80; server_name y; return 403; }
=> service.x: pool = "no-servers"
=> route: host = "y"; status = 403
=> route: status = 204
"#;

#[test]
fn service_is_named_after_the_default_server_block() {
    assert_rows(SERVICE_IS_NAMED_AFTER_THE_DEFAULT_SERVER_BLOCK);
}

const SERVICE_IS_NAMED_AFTER_THE_DEFAULT_SERVER_BLOCK: &str = r#"
server { listen 80; server_name x.example; location / { proxy_pass http://a; } }
=> service."x.example": pool = "a"

server { listen 443 ssl; server_name x.example; ssl_certificate /c.crt; ssl_certificate_key /c.key; location /
{ proxy_pass http://a; } }
=> service."x.example-tls": listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt" }
=> remark 2: Weir finds the key by the name of the certificate

server { listen 10.0.0.1:8080; server_name *.example; location / { proxy_pass http://a; } }
=> service.nginx-8080: listen = ["10.0.0.1:8080"]; pool = "a"

server { listen 80; listen 81; server_name x; location / { proxy_pass http://a; } }
=> service.x: listen = ["0.0.0.0:80", "0.0.0.0:81"]; pool = "a"

server { listen 80; listen 443 ssl; server_name x; ssl_certificate /c.crt; ssl_certificate_key /c.key; location
/ { proxy_pass http://a; } }
=> service.x: pool = "a"
=> service.x-tls: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt" }
=> remark 2: Weir finds the key by the name of the certificate

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 81; server_name x; location / { proxy_pass http://b; } }
=> service.x: pool = "a"
=> service.x-2: listen = ["0.0.0.0:81"]; pool = "b"

server { listen 80 proxy_protocol; server_name x; location / { proxy_pass http://a; } }
=> service.x: pool = "a"; proxy_protocol = true
"#;

#[test]
fn last_route_becomes_the_service_pool_only_without_edits() {
    assert_rows(LAST_ROUTE_BECOMES_THE_SERVICE_POOL_ONLY_WITHOUT_EDITS);
}

const LAST_ROUTE_BECOMES_THE_SERVICE_POOL_ONLY_WITHOUT_EDITS: &str = r#"
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"

location / { proxy_pass http://a; proxy_set_header X-A b; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: b"]

location / { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204

location /x { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404

rewrite ^/x/(.*)$ /y/$1 last; location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "next"

location ~ ^/x { return 204; } location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x"; status = 204

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; location / { proxy_pass http://b; } }
=> service.x: pool = "a"
=> route: host = "y"; pool = "b"
"#;

#[test]
fn service_has_the_settings_of_the_default_server_block() {
    assert_rows(SERVICE_HAS_THE_SETTINGS_OF_THE_DEFAULT_SERVER_BLOCK);
}

const SERVICE_HAS_THE_SETTINGS_OF_THE_DEFAULT_SERVER_BLOCK: &str = r#"
location / { proxy_pass http://a; } proxy_ignore_client_abort on; proxy_request_buffering off;
=> service.nginx-80: pool = "a"; abort_on_close = false; request_buffering = false

location / { proxy_pass http://a; } proxy_ignore_client_abort off; proxy_request_buffering on;
=> service.nginx-80: pool = "a"; abort_on_close = true; request_buffering = true

proxy_ignore_client_abort on; proxy_request_buffering off; proxy_connect_timeout 5s;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; abort_on_close = false; request_buffering = false; timeouts = { connect = "5s" }

server { listen 443 ssl; ssl_certificate /c.crt; ssl_certificate_key /c.key; ssl_protocols TLSv1.3;
ssl_client_certificate /ca.crt; ssl_verify_client on; location / { proxy_pass http://a; } }
=> service.nginx-443: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt", client_ca = "/ca.crt",
.. client_auth = "required", minimum = "1.3" }
=> remark 2: Weir finds the key by the name of the certificate

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> remark 2: Weir already does this, or a key of the service or

proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> remark 2: Weir already does this, or a key of the service or

server { listen 80; server_name x; location / { proxy_pass http://a; } }
server { listen 80; server_name y; location / { proxy_pass http://b; proxy_set_header X-Forwarded-For
$proxy_add_x_forwarded_for; } }
=> service.x: pool = "a"; x_forwarded = { for = "append" }
=> route: host = "y"; pool = "b"
=> route: pool = "a"; x_forwarded = { for = "keep" }
=> remark 3: Weir already does this, or a key of the service or

upstream k { server 10.0.0.7; keepalive 8; }
server { listen 80; location / { proxy_pass http://k; } }
=> pool.k: scheduler = "wrr"; host = "k"; servers = [; { address = "10.0.0.7:80" },; ]
=> service.nginx-80: pool = "k"; limits = { idle_servers = 8 }

upstream k { server 10.0.0.7; keepalive 8; } upstream m { server 10.0.0.8; keepalive 9; }
server { listen 80; server_name x; location / { proxy_pass http://k; } location /m { proxy_pass http://m; } }
=> pool.k: scheduler = "wrr"; host = "k"; servers = [; { address = "10.0.0.7:80" },; ]
=> pool.m: scheduler = "wrr"; host = "m"; servers = [; { address = "10.0.0.8:80" },; ]
=> service.x: pool = "k"; limits = { idle_servers = 8 }; normalize_path = { encoded_slash = "decode" }
=> route: path = "/m*"; pool = "m"
=> lost 2: `limits.idle_servers` is set per service, and anot

upstream k { server 10.0.0.7; keepalive 8; } upstream m { server 10.0.0.8; keepalive 9; }
server { listen 80; server_name x; location / { proxy_pass http://k; } }
server { listen 80; server_name y; location / { proxy_pass http://m; } }
=> pool.k: scheduler = "wrr"; host = "k"; servers = [; { address = "10.0.0.7:80" },; ]
=> pool.m: scheduler = "wrr"; host = "m"; servers = [; { address = "10.0.0.8:80" },; ]
=> service.x: pool = "k"; limits = { idle_servers = 8 }
=> route: host = "y"; pool = "m"
=> lost 2: `limits.idle_servers` is set per service, and anot

location / { proxy_pass http://a; proxy_set_header Host $host; }
=> service.nginx-80: pool = "a"
=> remark 2: Weir already does this, or a key of the service or

server { listen 8080; location / { proxy_pass http://a; proxy_set_header Host $host; } }
=> service.nginx-8080: listen = ["0.0.0.0:8080"]; pool = "a"
=> remark 2: Weir already does this, or a key of the service or
"#;

#[test]
fn paths_are_normalized_as_in_nginx() {
    assert_rows(PATHS_ARE_NORMALIZED_AS_IN_NGINX);
}

const PATHS_ARE_NORMALIZED_AS_IN_NGINX: &str = r#"
location / { proxy_pass http://a; } merge_slashes off;
=> service.nginx-80: pool = "a"; normalize_path = { merge_slashes = false }

location / { proxy_pass http://a; } merge_slashes on;
=> service.nginx-80: pool = "a"
=> lost 2: Weir has no setting for this

merge_slashes off;
server { listen 80; location /x { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { merge_slashes = false, encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404

location / { proxy_pass http://a/; }
=> service.nginx-80: pool = "a"; normalize_path = { forward = "normalized" }

location / { proxy_pass http://a/; } location /x { proxy_pass http://b; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "b"
=> lost 2: servers get the path as received, not normalized,

location / { proxy_pass http://a/; } location = /x { return 204; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode", forward = "normalized" }
=> route: path = "/x"; status = 204

location = /x { return 204; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x"; status = 204
=> route: status = 404

server { listen 80; server_name x; location / { proxy_pass http://a/; } }
server { listen 80; server_name y; location / { return 204; } }
=> service.x: pool = "a"; normalize_path = { forward = "normalized" }
=> route: host = "y"; status = 204

server { listen 80; server_name x; location / { proxy_pass http://a/; } }
server { listen 80; server_name y; location / { proxy_pass http://b; } }
=> service.x: pool = "a"
=> route: host = "y"; pool = "b"
=> lost 2: servers get the path as received, not normalized,
"#;

#[test]
fn gzip_types_and_minimum_length_are_imported() {
    assert_rows(GZIP_TYPES_AND_MINIMUM_LENGTH_ARE_IMPORTED);
}

const GZIP_TYPES_AND_MINIMUM_LENGTH_ARE_IMPORTED: &str = r#"
location / { proxy_pass http://a; } gzip on;
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["text/html"], minimum = 20 }

location / { proxy_pass http://a; } gzip on; gzip_types text/css text/plain; gzip_min_length 100;
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["text/html", "text/css",
.. "text/plain"], minimum = 100 }

location / { proxy_pass http://a; } gzip on; gzip_types *; gzip_min_length much;
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["application/*", "audio/*", "font/*",
.. "image/*", "message/*", "model/*", "multipart/*", "text/*", "video/*"], minimum = 20 }

gzip on; gzip_types text/css;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; compression = { codings = ["gzip"], types = ["text/html", "text/css"], minimum = 20
.. }

gzip on;
server { listen 80; location / { proxy_pass http://a; } gzip off; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route to a pool uses it

location / { proxy_pass http://a; } location /x { proxy_pass http://b; gzip on; gzip_min_length 5; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "b"; compression = { codings = ["gzip"], types = ["text/html"], minimum = 5 }

gzip on;
server { listen 80; location / { proxy_pass http://a; } location /x { proxy_pass http://b; gzip off; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; compression = { codings = ["gzip"],
.. types = ["text/html"], minimum = 20 }
=> route: path = "/x*"; pool = "b"; compression = false
"#;

#[test]
fn header_fields_with_underscores_are_kept_if_nginx_keeps_them() {
    assert_rows(HEADER_FIELDS_WITH_UNDERSCORES_ARE_KEPT_IF_NGINX_KEEPS_THEM);
}

const HEADER_FIELDS_WITH_UNDERSCORES_ARE_KEPT_IF_NGINX_KEEPS_THEM: &str = r#"
location / { proxy_pass http://a; } underscores_in_headers on;
=> service.nginx-80: pool = "a"; underscores = "keep"

location / { proxy_pass http://a; } underscores_in_headers off;
=> service.nginx-80: pool = "a"

location / { proxy_pass http://a; } ignore_invalid_headers off;
=> service.nginx-80: pool = "a"; underscores = "keep"

location / { proxy_pass http://a; } ignore_invalid_headers on;
=> service.nginx-80: pool = "a"
=> remark 2: this is nginx's default

location / { proxy_pass http://a; } underscores_in_headers on; ignore_invalid_headers off;
=> service.nginx-80: pool = "a"; underscores = "keep"

underscores_in_headers on;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; underscores = "keep"

underscores_in_headers on;
server { listen 80; location / { proxy_pass http://a; } underscores_in_headers off; }
=> service.nginx-80: pool = "a"
=> lost 2: weir.toml has no equivalent
"#;

#[test]
fn trusted_proxies_send_the_client_address() {
    assert_rows(TRUSTED_PROXIES_SEND_THE_CLIENT_ADDRESS);
}

const TRUSTED_PROXIES_SEND_THE_CLIENT_ADDRESS: &str = r#"
location / { proxy_pass http://a; } set_real_ip_from 10.0.0.0/8; set_real_ip_from 10.0.0.1;
=> service.nginx-80: pool = "a"; client_ip_header = "X-Real-IP"; trusted = ["10.0.0.0/8", "10.0.0.1"]

location / { proxy_pass http://a; } set_real_ip_from 10.0.0.0/8; real_ip_header X-Client; real_ip_recursive on;
=> service.nginx-80: pool = "a"; client_ip_header = "X-Client"; trusted = ["10.0.0.0/8"]

location / { proxy_pass http://a; } set_real_ip_from 10.0.0.0/8; real_ip_header x-forwarded-for;
=> service.nginx-80: pool = "a"; client_ip_header = "x-forwarded-for"; client_ip_recursive = false; trusted =
.. ["10.0.0.0/8"]

location / { proxy_pass http://a; } set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;
real_ip_recursive on;
=> service.nginx-80: pool = "a"; client_ip_header = "X-Forwarded-For"; trusted = ["10.0.0.0/8"]

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;
=> service.nginx-80: pool = "a"; client_ip_header = "X-Forwarded-For"; trusted = ["10.0.0.0/8"]; x_forwarded = { for
.. = "append" }
=> remark 2: Weir already does this, or a key of the service or
=> lost 3: nginx appends the client's address to X-Forwarded-

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
set_real_ip_from 10.0.0.0/8; real_ip_header X-Real-IP;
=> service.nginx-80: pool = "a"; client_ip_header = "X-Real-IP"; trusted = ["10.0.0.0/8"]; x_forwarded = { for =
.. "append" }
=> remark 2: Weir already does this, or a key of the service or

server { listen 80 proxy_protocol; location / { proxy_pass http://a; } set_real_ip_from 10.0.0.0/8;
real_ip_header proxy_protocol; }
=> service.nginx-80: pool = "a"; trusted = ["10.0.0.0/8"]; proxy_protocol = true
=> lost 3: a service's `client_ip_header` is a header field t

set_real_ip_from 10.0.0.0/8; real_ip_header X-Http;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; client_ip_header = "X-Http"; trusted = ["10.0.0.0/8"]

set_real_ip_from 10.0.0.0/8;
server { listen 80; location / { proxy_pass http://a; } set_real_ip_from 192.0.2.0/24; }
=> service.nginx-80: pool = "a"; client_ip_header = "X-Real-IP"; trusted = ["192.0.2.0/24"]

location / { proxy_pass http://a; } set_real_ip_from;
real_ip_header X-Client;
=> service.nginx-80: pool = "a"
=> lost 2: weir.toml has no equivalent
=> remark 3: nginx trusts no proxy without `set_real_ip_from`
"#;

#[test]
fn service_timeouts_come_from_the_server_block() {
    assert_rows(SERVICE_TIMEOUTS_COME_FROM_THE_SERVER_BLOCK);
}

const SERVICE_TIMEOUTS_COME_FROM_THE_SERVER_BLOCK: &str = r#"
location / { proxy_pass http://a; } client_header_timeout 1s; keepalive_timeout 2s; client_body_timeout 3s;
proxy_connect_timeout 4s; proxy_read_timeout 5s;
=> service.nginx-80: pool = "a"; timeouts = { request = "1s", idle = "2s", client = "3s", connect = "4s", server =
.. "5s" }

location / { proxy_pass http://a; } send_timeout 3s; proxy_send_timeout 5s;
=> service.nginx-80: pool = "a"; timeouts = { client = "3s", server = "5s" }

location / { proxy_pass http://a; } client_body_timeout 3s; proxy_read_timeout 5s;
send_timeout 4s;
proxy_send_timeout 6s;
=> service.nginx-80: pool = "a"; timeouts = { client = "3s", server = "5s" }
=> remark 3: `timeouts.client` applies to both directions
=> remark 4: `timeouts.server` applies to both directions

location / { proxy_pass http://a; }
keepalive_timeout 0;
client_header_timeout soon;
=> service.nginx-80: pool = "a"
=> lost 3: 0 disables the timeout, but Weir always has one
=> lost 4: invalid time
"#;
