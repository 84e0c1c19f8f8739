//! Rows about `set`.

use super::assert_rows;

#[test]
fn set_replaces_the_variable() {
    assert_rows(SET_REPLACES_THE_VARIABLE);
}

const SET_REPLACES_THE_VARIABLE: &str = r#"
set $x v;
location / { set $y ${x}w; proxy_set_header X-A $y-$x; proxy_pass http://a; }
location /b { proxy_set_header X-A $y; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/b*"; pool = "a"
=> route: pool = "a"; set_header = ["X-A: vw-v"]
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the value contains an unsupported variable or a na

location / { set $x a; proxy_pass http://$x; }
=> service.nginx-80: pool = "a"

location / { proxy_pass http://$x; set $x a; }
=> service.nginx-80: pool = "a"

set $x 403;
return $x;
=> service.nginx-80: pool = "no-servers"
=> route: status = 403

set $x y;
rewrite ^/x$ /$x permanent;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x$"; redirect = "/y?{query}"; status = 301

set $x;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request

set $x $geoip_country;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 3: the value contains an unsupported variable or a na

set $x $geoip_country;
set $y $x;
set $z unused;
location / { proxy_set_header X-A $y; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 5: the value contains an unsupported variable or a na

set $x $uri;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: {path}"]

set $x $uri; rewrite ^/a/(.*)$ /b/$1 last;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

set $x $document_uri; rewrite ^/a/(.*)$ /b/$1 last;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

set $x $args; rewrite ^/a/(.*)$ /b/$1 last;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

set $x $query_string; rewrite ^/a/(.*)$ /b/$1 last;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

set $x $host; rewrite ^/a/(.*)$ /b/$1 last;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "next"
=> route: pool = "a"; set_header = ["X-A: {host}"]

set $x $uri; rewrite ^/a$ /b permanent;
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/a$"; redirect = "/b?{query}"; status = 301
=> route: pool = "a"; set_header = ["X-A: {path}"]

set $x $uri; location /a { rewrite ^/a/(.*)$ /b/$1 last; }
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; rewrite = { regex = "^/a/(.*)$", to = "/b/{1}" }; restart = "first"
=> route: path = "/a*"; status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

location ~ ^/(.*)$ { set $x $1; proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/(.*)$"; pool = "a"
=> route: status = 404
=> lost 2: the value contains an unsupported variable or a na
=> lost 2: a route can only compare parts of the request

set $x http://a;
location / { proxy_pass $x; }
=> service.nginx-80: pool = "a"

set $x http://a/y/;
location / { proxy_pass $x; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is not an http or https URL
=> lost 3: it has no target that Weir supports; Weir responds

set $x b;
location / { proxy_pass http://$x/y; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

set $x v;
location / { limit_except GET { proxy_set_header X-B $x; deny all; } proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: not = { method = ["GET", "HEAD"] }; status = 403
=> unguarded 3: weir.toml has no equivalent

set $x v;
location / { location /b { proxy_set_header X-A $x; proxy_pass http://b; } proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/b*"; pool = "b"; set_header = ["X-A: v"]

log_format f "$m $x"; map $http_a $m { default d; x y; } access_log /l f;
server { listen 80; set $x v; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; access_log = "/l"
=> remark 2: `format` of `access_log` has no equivalent for $x;
=> lost 2: a route can only compare parts of the request
"#;

#[test]
fn conditional_set_has_a_value_for_each_condition() {
    assert_rows(CONDITIONAL_SET_HAS_A_VALUE_FOR_EACH_CONDITION);
}

const CONDITIONAL_SET_HAS_A_VALUE_FOR_EACH_CONDITION: &str = r#"
location / { set $p a; if ($http_a = x) { set $p b; } proxy_pass http://$p; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; pool = "b"

location / { if ($http_a = x) { set $p b; } proxy_pass http://a$p; }
=> pool.ab: servers_dns = { name = "ab", port = 80 }; host = "ab"; servers = []
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; pool = "ab"

set $x 0;
if ($http_a = x) { set $x 1; set $y 2; }
if ($x = 1) { return 403; }
if ($y = 2) { return 405; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403
=> remark 5: no request reaches it, because line 4 already matc

set $x 0;
if ($http_a ~ x) { set $x 1; }
if ($x != 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: not = { header = ["a: ~x"] }; status = 403

set $x 0;
if ($http_a) { set $x 1; }
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> lost 3: the block contains no action that Weir supports
=> unguarded 4: a route cannot test this condition; Weir rejects e
=> lost 5: nginx responds before it selects a location

set $x "";
if ($http_a = x) { set $x A; }
if ($http_b = y) { set $x ${x}B; }
if ($x = AB) { return 403; }
if ($x = A) { return 404; }
if ($x = B) { return 405; }
if ($x = "") { return 410; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x", "b: y"]; status = 403
=> route: header = ["a: x"]; not = { header = ["b: y"] }; status = 404
=> route: header = ["b: y"]; not = { header = ["a: x"] }; status = 405
=> route: not = { header = ["a: x", "b: y"] }; status = 410

set $x 0;
if ($http_a = x) { set $x 1; }
if ($http_a = x) { set $x 2; }
if ($x = 1) { return 403; }
if ($x = 2) { return 404; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 404

set $x 0;
if ($http_a = x) { set $x 1; }
if ($x = 1) { set $y 2; }
if ($y = 2) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403

set $x 0;
if ($geoip_country = x) { set $x 1; }
if ($x = 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> unguarded 4: a route cannot test this condition; Weir rejects e
=> lost 5: nginx responds before it selects a location

set $x 0;
if (-f /x) { set $x 1; }
if ($x = 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> unguarded 4: a route cannot test this condition; Weir rejects e
=> lost 5: nginx responds before it selects a location

set $x 1;
if ($x ~ 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> lost 4: nginx responds before it selects a location

set $x $http_a;
if ($x = 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> lost 4: nginx responds before it selects a location

set $x 1;
if ($x = $http_a) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> lost 4: nginx responds before it selects a location

set $x 1;
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> remark 4: nginx responds before it selects a location

set $x 0;
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"

set $x "";
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"

set $x 0;
if ($http_a = x) { set $x 1; add_header X-A b; }
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403
=> lost 3: the block contains no action that Weir supports

if ($http_a = x) { }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: the block contains no action that Weir supports

set $x v;
if ($http_a = x) { return 200 $x; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 200; body = "v"

set $x 0;
if ($http_a = x) { set $x 1; return 403; }
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403
=> route: pool = "a"; set_header = ["X-A: 0"]

set $p a;
location /b { set $p b; proxy_pass http://$p; }
location /c { proxy_pass http://$p; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/b*"; pool = "b"
=> route: path = "/c*"; pool = "a"
=> route: status = 404

map $http_a $m { default 0; x 1; }
server { listen 80; set $y $m; if ($y = 1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^x$"]; status = 403

map $http_a $m { default a; x b; } map $http_c $n { default 5; y 6; }
server { listen 80; location / { proxy_pass http://10.0.$n.1; } location /m { proxy_pass http://$m; } }
=> pool."10.0.6.1": host = "10.0.6.1"; servers = [; { address = "10.0.6.1:80" },; ]
=> pool."10.0.5.1": host = "10.0.5.1"; servers = [; { address = "10.0.5.1:80" },; ]
=> service.nginx-80: pool = "10.0.5.1"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/m*"; header = ["a: ~(?i)^x$"]; pool = "b"
=> route: path = "/m*"; pool = "a"
=> route: header = ["c: ~(?i)^y$"]; pool = "10.0.6.1"

map $http_a $m { default 0; x 1; } map $http_b $n { default 0; y 1; }
server { listen 80; set $y $m$n; if ($y = 11) { return 403; } if ($y = 10) { return 405; } location / {
proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^x$", "b: ~(?i)^y$"]; status = 403
=> route: header = ["a: ~(?i)^x$"]; not = { header = ["b: ~(?i)^y$"] }; status = 405

map $geoip_country $m { default 0; x 1; }
server { listen 80; set $y $m; if ($y = 1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location
=> unguarded 3: a route can only compare parts of the request

map $http_a $m { default 0; a 1; b 2; c 3; d 4; e 5; f 6; g 7; }
map $http_b $n { default 0; a 1; b 2; c 3; d 4; e 5; f 6; g 7; }
server { listen 80; set $y $m$n; if ($y = 11) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^a$", "b: ~(?i)^a$"]; status = 403

map $http_a $m { default 0; a 1; b 2; c 3; d 4; e 5; f 6; g 7; h 8; }
map $http_b $n { default 0; a 1; b 2; c 3; d 4; e 5; f 6; g 7; }
server { listen 80; set $y $m$n; if ($y = 11) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> unguarded 4: a route cannot test this condition; Weir rejects e
=> unguarded 4: nginx responds before it selects a location
=> unguarded 4: a route can only compare parts of the request

set $x 1;
if (x = 1) { return 403; }
if { return 404; }
if $x { return 405; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 4: a route can only compare parts of the request
=> unguarded 5: a route can only compare parts of the request
=> lost 6: nginx responds before it selects a location

if ($http_a = x) { set y 1; }
if ($y = 1) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403

if ($http_a = x) { set; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: the block contains no action that Weir supports

set $x 0;
if ($http_a = x) { set $x $geoip_country; }
location / { proxy_set_header X-A $x; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 4: the value contains an unsupported variable or a na

map $http_a $m { default 0; x 1; }
server { listen 80; set $y $m-$m; if ($y = 1-1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^x$"]; status = 403

set $x 0;
if ($http_a ~ ^x$) { set $x 1; }
if ($x) { return 403; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~^x$"]; status = 403

set $x 1;
if ($x ~ 1) { set $y 1; }
if ($y) { return 200; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: a route can only compare parts of the request

map $uri $m { default 0; /x 1; }
server { listen 80;
set $y $m;
location / { proxy_set_header X-A $y; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 4: a route can only compare parts of the request
=> lost 5: the value contains an unsupported variable or a na
"#;

#[test]
fn set_in_a_block_with_other_directives_changes_the_variable() {
    assert_rows(SET_IN_A_BLOCK_WITH_OTHER_DIRECTIVES_CHANGES_THE_VARIABLE);
}

const SET_IN_A_BLOCK_WITH_OTHER_DIRECTIVES_CHANGES_THE_VARIABLE: &str = r#"
location / { set $x 0; if ($http_a = x) { set $x 1; expires 1h; } if ($x) { return 403; } proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403
=> unguarded 2: the block contains no action that Weir supports

location / { set $x 0; if ($http_a = x) { set $x 1; break; } if ($x) { return 403; } proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> unguarded 2: the block contains no action that Weir supports

location / { set $x a; if ($http_a = x) { set $x b; proxy_pass http://$x; } proxy_pass http://$x; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; pool = "b"

location / { set $x 0; if ($geoip_country = x) { set $x 1; expires 1h; } if ($x) { return 403; } proxy_pass
http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> unguarded 2: a route can only compare parts of the request
=> unguarded 2: a route cannot test this condition; Weir rejects e
=> unguarded 2: its `if` applies to every request and responds fir

location / { if ($http_a = x) { set $x 1; expires 1h; } if ($x) { return 403; } proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: header = ["a: x"]; status = 403
=> unguarded 2: the block contains no action that Weir supports

map $host $m { default 0; x 1; y 1; }
server { listen 80; location / { set $x 0; if ($m) { set $x 1; } if ($x) { return 403; } proxy_pass http://a; }
}
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> unguarded 3: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: its `if` applies to every request and responds fir
"#;
