//! Tests the order of locations, and lines that respond before a location is selected.

use super::assert_rows;

#[test]
fn routes_have_the_order_in_which_nginx_selects_locations() {
    assert_rows(ROUTES_HAVE_THE_ORDER_IN_WHICH_NGINX_SELECTS_LOCATIONS);
}

const ROUTES_HAVE_THE_ORDER_IN_WHICH_NGINX_SELECTS_LOCATIONS: &str = r#"
location / { proxy_pass http://a; }
location /a { return 201; }
location ~ ^/long-expression { return 202; }
location ~ ^/x { return 203; }
location ^~ /ab { return 204; }
location /abc { return 205; }
location ^~ /abcd { return 206; }
location = /x { return 207; }
location = /xyz { return 208; }
location /abcdefghi { return 209; }
location ~* \.(PNG)$ { return 210; }
location ~ \.(gif|jpg)$ { return 211; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/xyz"; status = 208
=> route: path = "/x"; status = 207
=> route: path = "/abcdefghi*"; status = 209
=> route: path = "/abcd*"; status = 206
=> route: path = "/abc*"; status = 205
=> route: path = "/ab*"; status = 204
=> route: path_regex = "^/long-expression"; status = 202
=> route: path_regex = "^/x"; status = 203
=> route: path_regex = "(?i)\\.(PNG)$"; status = 210
=> route: path = "*.gif"; status = 211
=> route: path = "*.jpg"; status = 211
=> route: path = "/a*"; status = 201
=> lost 7: nginx tries regular expressions before this locati
=> lost 11: nginx tries regular expressions before this locati

location = /x { return 204; }
location / { return 200; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x"; status = 204
=> route: status = 200

location ~ ^/x { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x"; pool = "a"
=> route: status = 404

location / { allow 10.0.0.0/8; deny all; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: source = ["10.0.0.0/8"]; pool = "a"
=> route: status = 403

rewrite ^/x/(.*)$ /y/$1 last;
location /y/ { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "next"
=> route: path = "/y/*"; pool = "a"
=> route: status = 404

rewrite ^/x/(.*)$ /y/$1 last;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "next"
=> route: status = 404

location / { if ($http_a = b) { return 204; } return 404; }
location /a { if ($http_a = b) { return 204; } return 404; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; header = ["a: b"]; status = 204
=> route: path = "/a*"; status = 404
=> route: header = ["a: b"]; status = 204
=> route: status = 404

rewrite ^/x/(.*)$ /y/$1;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "next"
"#;

#[test]
fn location_with_an_invalid_path_is_reported() {
    assert_rows(LOCATION_WITH_AN_INVALID_PATH_IS_REPORTED);
}

const LOCATION_WITH_AN_INVALID_PATH_IS_REPORTED: &str = r#"
location { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: the path is missing or the modifier is invalid

location ! /x { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: the path is missing or the modifier is invalid

location = /x y { return 204; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x"; status = 204
=> route: status = 404

location /a*b { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: `*` in a route's `path` is a wildcard

location = /a* { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: `*` in a route's `path` is a wildcard

location ^~ /a*b { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: `*` in a route's `path` is a wildcard

location ~ a*b { return 204; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "a*b"; status = 204
=> route: status = 404

location "/a b" { return 204; }
location = "/a%" { return 205; }
location ^~ "/c d" { return 206; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a%25"; status = 205
=> route: path = "/c%20d*"; status = 206
=> route: path = "/a%20b*"; status = 204
=> route: status = 404
"#;

#[test]
fn location_below_an_exclusive_prefix_precedes_expressions() {
    assert_rows(LOCATION_BELOW_AN_EXCLUSIVE_PREFIX_PRECEDES_EXPRESSIONS);
}

const LOCATION_BELOW_AN_EXCLUSIVE_PREFIX_PRECEDES_EXPRESSIONS: &str = r#"
location ^~ /a/ { return 201; }
location /a/b/ { return 202; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a/b/*"; status = 202
=> route: path = "/a/*"; status = 201
=> route: status = 404

location ^~ /a/ { return 201; }
location /a/b/ { return 202; }
location ~ b { return 203; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a/b/*"; status = 202
=> route: path = "/a/*"; status = 201
=> route: path_regex = "b"; status = 203
=> route: status = 404
=> lost 3: nginx tries regular expressions before this locati

location ^~ /a/ { return 201; }
location /a/b/ { return 202; }
location ~* b { return 203; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a/b/*"; status = 202
=> route: path = "/a/*"; status = 201
=> route: path_regex = "(?i)b"; status = 203
=> route: status = 404
=> lost 3: nginx tries regular expressions before this locati

location ^~ /a/ { return 201; }
location /b/ { return 202; }
location ~ b { return 203; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a/*"; status = 201
=> route: path_regex = "b"; status = 203
=> route: path = "/b/*"; status = 202
=> route: status = 404

location ^~ /a/ { return 201; }
location = /a/b { return 202; }
location ~ b { return 203; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a/b"; status = 202
=> route: path = "/a/*"; status = 201
=> route: path_regex = "b"; status = 203
=> route: status = 404
"#;

#[test]
fn response_before_location_selection_makes_locations_unneeded() {
    assert_rows(RESPONSE_BEFORE_LOCATION_SELECTION_MAKES_LOCATIONS_UNNEEDED);
}

const RESPONSE_BEFORE_LOCATION_SELECTION_MAKES_LOCATIONS_UNNEEDED: &str = r#"
return 301 https://b.example$request_uri;
location / { proxy_pass http://a;
proxy_buffering off; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example{path}"; status = 301
=> remark 3: nginx responds before it selects a location
=> remark 4: nginx responds before it selects a location

if ($scheme = http) { return 301 https://b.example$request_uri; }
location /
{ proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example{path}"; status = 301
=> remark 3: nginx responds before it selects a location
=> remark 4: nginx responds before it selects a location

rewrite ^ https://b.example$request_uri? permanent;
location /
{ proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example{path}"; status = 301
=> remark 3: nginx responds before it selects a location
=> remark 4: nginx responds before it selects a location

if ($scheme = https) { return 301 https://b.example$request_uri; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> remark 2: it never applies to a client

if ($scheme = http) { rewrite ^/a/(.*)$ /b/$1 last; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"

if ($http_a = b) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: b"]; status = 403

if ($geoip_country = X) { return 403; }
location /
{ proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> lost 3: nginx responds before it selects a location
=> lost 4: it is in the block that begins on line 3, which is

if ($geoip_country = X) { return 200; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request

location /x { if ($scheme = http) { return 301 https://b.example$request_uri; }
proxy_pass http://a;
proxy_read_timeout 5s; if ($http_a = b) { return 204; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; redirect = "https://b.example{path}"; status = 301
=> route: status = 404
=> remark 3: its `if` applies to every request and responds fir
=> remark 4: its `if` applies to every request and responds fir

location ~ \.(png|jpg)$ { if ($scheme = http) { return 204; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.png"; status = 204
=> route: path = "*.jpg"; status = 204
=> route: status = 404
=> remark 2: its `if` applies to every request and responds fir

if ($http_a = b) { break; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: the block contains no action that Weir supports

listen 443 ssl; ssl_certificate /c.crt; ssl_certificate_key /c.key;
if ($scheme = http) { return 301 https://b.example$request_uri; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example{path}"; status = 301
=> service.nginx-443: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt" }
=> remark 2: Weir finds the key by the name of the certificate

add_header X-A b always;
return 403;
=> service.nginx-80: pool = "no-servers"
=> route: status = 403; add_response_header = ["X-A: b"]
"#;

#[test]
fn unsupported_condition_of_a_rejection_rejects_every_request() {
    assert_rows(UNSUPPORTED_CONDITION_OF_A_REJECTION_REJECTS_EVERY_REQUEST);
}

const UNSUPPORTED_CONDITION_OF_A_REJECTION_REJECTS_EVERY_REQUEST: &str = r#"
if ($geoip_country = X) { return 401; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 401
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> lost 3: nginx responds before it selects a location

if ($geoip_country = X) { return 405; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 405
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> lost 3: nginx responds before it selects a location

if ($geoip_country = X) { return 429; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 429
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> lost 3: nginx responds before it selects a location

if ($geoip_country = X) { return 444; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: close = true
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> lost 3: nginx responds before it selects a location

if ($geoip_country = X) { return 404; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> unguarded 2: a route can only compare parts of the request

if ($geoip_country = X) { rewrite ^ 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
"#;

#[test]
fn conditions_of_a_location_become_routes_before_it() {
    assert_rows(CONDITIONS_OF_A_LOCATION_BECOME_ROUTES_BEFORE_IT);
}

const CONDITIONS_OF_A_LOCATION_BECOME_ROUTES_BEFORE_IT: &str = r#"
location /x { if ($http_a = b) { add_header X-In c; return 200 t; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; header = ["a: b"]; status = 200; body = "t"; add_response_header = ["X-In: c"]
=> route: path = "/x*"; pool = "a"
=> route: status = 404

location /x/ { if ($http_a = b) { proxy_pass http://b; } proxy_set_header X-Y z; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x/*"; header = ["a: b"]; pool = "b"; set_header = ["X-Y: z"]
=> route: path = "/x/*"; pool = "a"; set_header = ["X-Y: z"]
=> route: status = 404

location ~ ^/x { if ($http_a = b) { return 204; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x"; header = ["a: b"]; status = 204
=> route: path_regex = "^/x"; pool = "a"
=> route: status = 404

location /x { if ($http_a = b) { proxy_pass http://b; gzip off;
proxy_buffering off; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; header = ["a: b"]; pool = "b"
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> remark 3: Weir has no such setting

location /x { if ($http_a = b) { rewrite ^/x/(.*)$ /y/$1 last; } proxy_pass http://a; }
location /y { proxy_pass http://b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; header = ["a: b"]; rewrite = { regex = "^/x/(.*)$", to = "/y/{1}" }; restart = "first"
=> route: path = "/x*"; pool = "a"
=> route: path = "/y*"; pool = "b"
=> route: status = 404

add_header X-S t always;
if ($http_a = b) { return 301 https://c.example/; }
rewrite ^/old$ /new permanent;
rewrite ^/gone/(.*)$ /y/$1 last;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: header = ["a: b"]; redirect = "https://c.example/"; status = 301; add_response_header = ["X-S: t"]
=> route: path_regex = "^/old$"; redirect = "/new?{query}"; status = 301; add_response_header = ["X-S: t"]
=> route: rewrite = { regex = "^/gone/(.*)$", to = "/y/{1}" }; restart = "next"
=> route: pool = "a"; add_response_header = ["X-S: t"]

add_header X-S t always;
if ($http_a = b) { add_header X-T u always; return 301 https://c.example/; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: b"]; redirect = "https://c.example/"; status = 301; add_response_header = ["X-T: u"]
=> route: pool = "a"; add_response_header = ["X-S: t"]
"#;

#[test]
fn server_name_variable_is_the_first_name() {
    assert_rows(SERVER_NAME_VARIABLE_IS_THE_FIRST_NAME);
}

const SERVER_NAME_VARIABLE_IS_THE_FIRST_NAME: &str = r#"
server { listen 80; server_name _ a.example; location / { return 301 https://$server_name/; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: the target contains an unsupported variable or a n
=> lost 2: it has no target that Weir supports; Weir responds

server { listen 80; server_name 1.example b.example; location / { return 301 https://$server_name/; } }
=> service."1.example": pool = "no-servers"
=> route: redirect = "https://1.example/"; status = 301

server { listen 80; server_name ~^x$; location / { return 301 https://$server_name/; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: the target contains an unsupported variable or a n
=> lost 2: it has no target that Weir supports; Weir responds

server { listen 80; location / { return 301 https://$server_name/; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: the target contains an unsupported variable or a n
=> lost 2: it has no target that Weir supports; Weir responds

server { listen 80; server_name a.example; server_name b.example; return 301 https://$server_name/; }
=> service."a.example": pool = "no-servers"
=> route: redirect = "https://a.example/"; status = 301

server { root /srv; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> remark 2: no listen: port 80 is used, as in nginx
"#;
