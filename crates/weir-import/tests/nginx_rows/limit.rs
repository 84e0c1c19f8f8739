//! Rows about limits, sizes and retries.

use super::assert_rows;

#[test]
fn limits_of_a_location_become_those_of_its_route() {
    assert_rows(LIMITS_OF_A_LOCATION_BECOME_THOSE_OF_ITS_ROUTE);
}

const LIMITS_OF_A_LOCATION_BECOME_THOSE_OF_ITS_ROUTE: &str = r#"
limit_req_zone $binary_remote_addr zone=z:1m rate=90r/m;
server { listen 80; location /a { limit_req zone=z burst=5 nodelay; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = "90/m", burst = 6 }
=> route: status = 404

limit_req_zone $http_x_key zone=z:1m rate=120r/m;
server { listen 80; location /a { limit_req zone=z; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1, key = "header:x-key" }
=> route: status = 404
=> unguarded 3: requests above the rate get status 429 at once; We

limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location /a { limit_conn c 7; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { concurrent = 7 }
=> route: status = 404

limit_conn_zone $http_x_key zone=c:1m;
server { listen 80; location /a { limit_conn c 7; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { concurrent = 7, key = "header:x-key" }
=> route: status = 404

limit_req_zone $http_x_key zone=z:1m rate=2r/s; limit_conn_zone $http_x_key zone=c:1m;
server { listen 80; location /a { limit_req zone=z nodelay; limit_conn c 7; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1, concurrent = 7, key = "header:x-key" }
=> route: status = 404

limit_req_zone $http_x_key zone=z:1m rate=2r/s; limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location /a { limit_req zone=z nodelay;
limit_conn c 7; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1, key = "header:x-key" }
=> route: status = 404
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: `limits` has only one key to distinguish clients
"#;

#[test]
fn shared_zone_is_not_imported() {
    assert_rows(SHARED_ZONE_IS_NOT_IMPORTED);
}

const SHARED_ZONE_IS_NOT_IMPORTED: &str = r#"
limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80; location /a { limit_req zone=z nodelay burst=5; proxy_pass http://a; }
location /b { limit_req burst=6 zone=z nodelay; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"
=> route: path = "/b*"; pool = "a"
=> route: status = 404
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 3: a limit applies to one service or route, and rejec
=> unguarded 4: a limit applies to one service or route, and rejec

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s; limit_req_zone $binary_remote_addr zone=y:1m rate=3r/s;
server { listen 80; location /a { limit_req zone=z nodelay; proxy_pass http://a; }
location /b { limit_req zone=y nodelay; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1 }
=> route: path = "/b*"; pool = "a"; limits = { rate = 3, burst = 1 }
=> route: status = 404

limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location /a { limit_conn c 7; proxy_pass http://a; }
location /b { limit_conn c 8; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"
=> route: path = "/b*"; pool = "a"
=> route: status = 404
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 3: a limit applies to one service or route, and rejec
=> unguarded 4: a limit applies to one service or route, and rejec

limit_conn_zone $binary_remote_addr zone=c:1m; limit_conn_zone $binary_remote_addr zone=d:1m;
server { listen 80; location /a { limit_conn c 7; proxy_pass http://a; }
location /b { limit_conn d 8; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { concurrent = 7 }
=> route: path = "/b*"; pool = "a"; limits = { concurrent = 8 }
=> route: status = 404

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s; limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location /a { limit_req zone=z nodelay; limit_conn c 3; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1, concurrent = 3 }
=> route: status = 404

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80; server_name x; location / { return 204; } }
server { listen 80; server_name y z;
location /a { limit_req zone=z nodelay; proxy_pass http://a; } }
=> service.x: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; path = "/a*"; pool = "a"
=> route: host = "y"; status = 404
=> route: host = "z"; path = "/a*"; pool = "a"
=> route: host = "z"; status = 404
=> route: status = 204
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 5: a limit applies to one service or route, and rejec

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80; server_name x; location / { return 204; } }
server { listen 80; server_name y;
location /a { limit_req zone=z nodelay; proxy_pass http://a; } }
=> service.x: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; path = "/a*"; pool = "a"; limits = { rate = 2, burst = 1 }
=> route: host = "y"; status = 404
=> route: status = 204

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80; server_name x; location / { return 204; } }
server { listen 80; server_name y z;
location ~ \.(png|jpg)$ { limit_req zone=z nodelay; proxy_pass http://a; } }
=> service.x: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: host = "y"; path = "*.png"; pool = "a"
=> route: host = "y"; path = "*.jpg"; pool = "a"
=> route: host = "y"; status = 404
=> route: host = "z"; path = "*.png"; pool = "a"
=> route: host = "z"; path = "*.jpg"; pool = "a"
=> route: host = "z"; status = 404
=> route: status = 204
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 5: a limit applies to one service or route, and rejec

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80;
location ~ \.(png|jpg)$ { limit_req zone=z nodelay; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.png"; pool = "a"
=> route: path = "*.jpg"; pool = "a"
=> route: status = 404
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: a limit applies to one service or route, and rejec

limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s;
server { listen 80; server_name x y;
location ~ \.png$ { limit_req zone=z nodelay; proxy_pass http://a; } }
=> service.x: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.png"; pool = "a"; limits = { rate = 2, burst = 1 }
=> route: status = 404
"#;

#[test]
fn invalid_zones_and_limits_are_reported() {
    assert_rows(INVALID_ZONES_AND_LIMITS_ARE_REPORTED);
}

const INVALID_ZONES_AND_LIMITS_ARE_REPORTED: &str = r#"
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z; }
=> service.nginx-80: pool = "a"
=> unguarded 3: the zone is not defined

server { listen 80; location / { proxy_pass http://a; }
limit_req burst=3; }
=> service.nginx-80: pool = "a"
=> unguarded 3: the zone is missing

limit_req_zone $binary_remote_addr zone=other:1m rate=2r/s; limit_conn_zone $binary_remote_addr zone=z:1m;
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z nodelay; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: the zone is not defined

limit_req_zone $geoip_country zone=z:1m rate=2r/s;
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z nodelay; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: `limits.key` accepts only the source, a field, a c

limit_req_zone $binary_remote_addr zone=z:1m rate=0r/s;
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z nodelay; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: the rate is not a number of requests per second or

limit_req_zone $binary_remote_addr zone=z:1m;
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z nodelay; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: the rate is not a number of requests per second or

limit_req_zone $binary_remote_addr zone=z:1m rate=5r/h;
server { listen 80; location / { proxy_pass http://a; }
limit_req zone=z nodelay; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: the rate is not a number of requests per second or

limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location / { proxy_pass http://a; }
limit_conn c; }
=> service.nginx-80: pool = "a"
=> lost 2: a limit applies to one service or route, and rejec
=> unguarded 4: nginx requires a number

server { listen 80; location / { proxy_pass http://a; }
limit_conn; }
=> service.nginx-80: pool = "a"
=> unguarded 3: the zone is missing

server { listen 80; location / { proxy_pass http://a; }
limit_conn c 5; }
=> service.nginx-80: pool = "a"
=> unguarded 3: the zone is not defined
"#;

#[test]
fn limits_of_a_server_block_are_those_of_the_service() {
    assert_rows(LIMITS_OF_A_SERVER_BLOCK_ARE_THOSE_OF_THE_SERVICE);
}

const LIMITS_OF_A_SERVER_BLOCK_ARE_THOSE_OF_THE_SERVICE: &str = r#"
limit_req_zone $binary_remote_addr zone=z:1m rate=2r/s; limit_conn_zone $binary_remote_addr zone=c:1m;
server { listen 80; location / { proxy_pass http://a; }
limit_conn c 5; limit_req zone=z burst=9 nodelay; client_max_body_size 1m; client_max_body_size 2m; }
=> service.nginx-80: pool = "a"; limits = { body = 2097152, rate = 2, burst = 10, concurrent = 5 }
=> unguarded 4: a service's `limits` has no such key, or counts di

client_max_body_size 3k;
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"; limits = { body = 3072 }

client_max_body_size 3k;
server { listen 80; location / { proxy_pass http://a; }
client_max_body_size 4294967295; }
=> service.nginx-80: pool = "a"; limits = { body = 4294967295 }
=> lost 2: a service's `limits` has no such key, or counts di

server { listen 80; location / { proxy_pass http://a; }
client_max_body_size 4g; }
=> service.nginx-80: pool = "a"; limits = { body = 4294967295 }
=> remark 3: Weir's largest limit is one byte less

server { listen 80; location / { proxy_pass http://a; }
client_max_body_size 5g; }
=> service.nginx-80: pool = "a"; limits = { body = 0 }
=> lost 3: imported without a limit, because Weir's largest l

server { listen 80; location / { proxy_pass http://a; }
client_max_body_size much; }
=> service.nginx-80: pool = "a"
=> lost 3: nginx requires a size

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream_tries 1; }
=> service.nginx-80: pool = "a"; limits = { retries = 0 }

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream_tries 0; }
=> service.nginx-80: pool = "a"
=> lost 3: `retries` always limits the number of other server

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream_tries many; }
=> service.nginx-80: pool = "a"
=> lost 3: `retries` always limits the number of other server

proxy_next_upstream_tries 3;
server { listen 80; location /a { proxy_next_upstream_tries 2;
proxy_next_upstream error; client_max_body_size 1k; proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; limits = { retries = 2 }; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"; max_body = 1024; retry_on = ["connect", "empty"]; retries = 1
=> route: status = 404
"#;

#[test]
fn retry_conditions_are_those_of_proxy_next_upstream() {
    assert_rows(RETRY_CONDITIONS_ARE_THOSE_OF_PROXY_NEXT_UPSTREAM);
}

const RETRY_CONDITIONS_ARE_THOSE_OF_PROXY_NEXT_UPSTREAM: &str = r#"
server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream error timeout; }
=> service.nginx-80: pool = "a"; retry_on = ["connect", "empty", "timeout"]

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream invalid_header http_503 http_404; }
=> service.nginx-80: pool = "a"; retry_on = ["malformed", "503", "404"]

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream off; }
=> service.nginx-80: pool = "a"; retry_on = []

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream error
non_idempotent; }
=> service.nginx-80: pool = "a"; retry_on = ["connect", "empty"]
=> lost 3: non_idempotent is not imported: Weir only retries

server { listen 80; location / { proxy_pass http://a; }
proxy_next_upstream error updating; }
=> service.nginx-80: pool = "a"; retry_on = ["connect", "empty"]
=> lost 3: updating is not imported: `retry_on` has no such c
"#;
