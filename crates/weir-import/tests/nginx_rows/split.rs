//! Rows about `split_clients`.

use super::assert_rows;

#[test]
fn split_selects_pools_by_shares() {
    assert_rows(SPLIT_SELECTS_POOLS_BY_SHARES);
}

const SPLIT_SELECTS_POOLS_BY_SHARES: &str = r#"
split_clients $remote_addr $v { 10% a; 33.33% b; * a; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:3333", "a:5667"]; split_by = "{client}"

split_clients "${remote_addr}x" $v { 0.5% http://a; * https://b; }
server { listen 80; location / { proxy_pass $v; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:50", "b:9950"]; split_by = "{client}x"

split_clients $remote_addr $v { 10% a; 0% c; 90% b; }
server { listen 80; location / { proxy_pass http://${v}; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% a; 50% b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the split's variable is empty for some requests
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 60% a; 50% b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $scheme $v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $https $v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $geoip_country $v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10 a; * b; }
server { listen 80; location / { proxy_pass http://$v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v/x; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% a; * http://b/x; }
server { listen 80; location / { proxy_pass $v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is not an http or https URL
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% http://a; * http://b/x; }
server { listen 80; location / { proxy_pass $v; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a value of the split's variable has a path
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% a; * b; }
server { listen 80; location / { proxy_pass https://$v; proxy_ssl_verify on; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% 10.0.0.8; * 10.0.0.9:81; }
server { listen 80; location / { proxy_pass http://$v$request_uri; proxy_set_header Host x.example; } }
=> pool."10.0.0.8": host = "x.example"; servers = [; { address = "10.0.0.8:80" },; ]
=> pool."10.0.0.9-81": host = "x.example"; servers = [; { address = "10.0.0.9:81" },; ]
=> service.nginx-80: pool = "no-servers"
=> route: split = ["10.0.0.8:1000", "10.0.0.9-81:9000"]; split_by = "{client}"
=> remark 3: Weir already does this, or a key of the service or

split_clients $remote_addr $v_1 { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v_1; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v-1 { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$v-1; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% a; * b; }
server { listen 80; location / { proxy_pass http://$w; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds
"#;

#[test]
fn map_of_a_split_selects_pools() {
    assert_rows(MAP_OF_A_SPLIT_SELECTS_POOLS);
}

const MAP_OF_A_SPLIT_SELECTS_POOLS: &str = r#"
split_clients $remote_addr $v { 10% one; * two; }
map $v $p { ONE a; two b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
map $p $q { x b; default a; }
map $v $p { one x; default y; }
server { listen 80; location / { proxy_pass http://$q; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["b:1000", "a:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% default; * two; }
map $v $p { default a; two b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
map $v $p { one a; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the split's variable is empty for some requests
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
map $v $p { ~one a; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the target is computed, but a route's pool is fixe
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
map $v $p { one $host; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the target is computed, but a route's pool is fixe
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
map $v $p { \one a; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the target is computed, but a route's pool is fixe
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
map $v $p { volatile; one a; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the target is computed, but a route's pool is fixe
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
map $host $p { one a; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "b"
=> route: host = "one"; pool = "a"
=> lost 2: a route can only compare parts of the request

split_clients $remote_addr $v { 10% one; * two; }
map $v$host $p { one a; default b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 4: the target is computed, but a route's pool is fixe
=> lost 4: it has no target that Weir supports; Weir responds
"#;

#[test]
fn conditions_on_a_split_select_pools() {
    assert_rows(CONDITIONS_ON_A_SPLIT_SELECT_POOLS);
}

const CONDITIONS_ON_A_SPLIT_SELECT_POOLS: &str = r#"
split_clients $remote_addr $v { 10% one; 20% three; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; } proxy_pass http://a; proxy_read_timeout
5s; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["b:1000", "a:2000", "a:7000"]; split_by = "{client}"; timeouts = { server = "5s" }

split_clients $remote_addr $v { 10% one; 20% three; * two; }
server { listen 80; location / { if ($v != one) { proxy_pass http://b; } if ($v = three) { proxy_pass http://a;
} proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["a:1000", "a:2000", "b:7000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = "one" ) { proxy_pass http://b; } proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: split = ["b:1000", "a:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; } } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 3: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v ~ one) { proxy_pass http://b; } proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { return 204; } proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; add_header X-A b; } proxy_pass http://a;
} }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request

split_clients $remote_addr $v { 10% one; * two; } split_clients $remote_port $w { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; } if ($w = one) { proxy_pass http://b; }
proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; } if ($http_a = c) { return 204; }
proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: header = ["a: c"]; status = 204
=> route: split = ["b:1000", "a:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b; } proxy_pass http://a; proxy_pass
http://b; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: a route can only compare parts of the request
=> lost 3: an earlier directive determines the action

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { location /x { if ($v = one) { proxy_pass http://b; } proxy_pass http://a; }
proxy_pass http://a; } location /y { if ($v = two) { proxy_pass http://b; } proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; split = ["b:1000", "a:9000"]; split_by = "{client}"
=> route: path = "/y*"; split = ["a:1000", "b:9000"]; split_by = "{client}"

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / { if ($v = one) { proxy_pass http://b/x; }
proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: a value of the split's variable has a path
=> lost 3: it has no target that Weir supports; Weir responds
=> lost 4: a value of the split's variable has a path

split_clients $remote_addr $v { 10% one; * two; }
server { listen 80; location / {
if ($v = one) {
proxy_pass ftp://b; }
proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: it has no target that Weir supports; Weir responds
=> lost 4: the target is not an http or https URL
=> lost 5: the target is not an http or https URL
=> lost 6: the target is not an http or https URL
"#;

#[test]
fn mirror_with_a_split_copies_a_share() {
    assert_rows(MIRROR_WITH_A_SPLIT_COPIES_A_SHARE);
}

const MIRROR_WITH_A_SPLIT_COPIES_A_SHARE: &str = r#"
split_clients $remote_addr $v { 10% b; * ""; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; }
location = /copy { internal; proxy_pass http://$v$request_uri; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: pool = "a"; mirror = { pool = "b", percent = 10.00, body = 1048576, concurrent = 10000 }
=> remark 2: the mirror's `percent` selects requests at random,

split_clients $remote_addr $v { 10% b; * ""; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; }
location = /copy { proxy_pass http://$v$request_uri; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 503
=> route: pool = "a"; mirror = { pool = "b", percent = 10.00, body = 1048576, concurrent = 10000 }
=> remark 2: the mirror's `percent` selects requests at random,
=> lost 4: the split's variable is empty for some requests
=> lost 4: it has no target that Weir supports; Weir responds

split_clients $remote_addr $v { 10% b; * a; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; }
location = /copy { internal; proxy_pass http://$v$request_uri; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> lost 3: `percent` accepts only one share, but `split_clien

split_clients $remote_addr $v { 10% b; * ""; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; } location /other { internal; proxy_pass
http://$v; }
location = /copy { internal; proxy_pass http://$v$request_uri; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: path = "/other*"; status = 404
=> route: pool = "a"; mirror = { pool = "b", percent = 10.00, body = 1048576, concurrent = 10000 }
=> remark 2: the mirror's `percent` selects requests at random,
=> unguarded 3: the split's variable is empty for some requests

split_clients $remote_addr $v { 10% b/x; * ""; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; }
location = /copy { internal; proxy_pass http://$v; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: pool = "a"; mirror = { pool = "b", percent = 10.00, body = 1048576, concurrent = 10000, path = "/x" }
=> remark 2: the mirror's `percent` selects requests at random,
=> unguarded 4: a value of the split's variable has a path

split_clients $remote_addr $v { 90% one; * two; } map $v $p { one ""; default b; }
server { listen 80; location / { mirror /copy; proxy_pass http://a; }
location = /copy { internal; proxy_pass http://$p$request_uri; } }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: pool = "a"; mirror = { pool = "b", percent = 10.00, body = 1048576, concurrent = 10000 }
=> remark 2: the mirror's `percent` selects requests at random,
"#;
