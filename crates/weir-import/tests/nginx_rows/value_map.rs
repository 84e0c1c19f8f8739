//! Rows about `map` and `geo`.

use super::assert_rows;

#[test]
fn map_selects_the_pool() {
    assert_rows(MAP_SELECTS_THE_POOL);
}

const MAP_SELECTS_THE_POOL: &str = r#"
map $host $p { default a; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "b.example"; pool = "b"

map $request_method $p { default a; POST b; PUT b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: method = ["POST"]; pool = "b"
=> route: method = ["PUT"]; pool = "b"

map $http_x_key $p { default a; one b; ~^two b; ~*^three$ c; }
server { listen 80; location / { proxy_pass http://$p; } }
=> pool.c: servers_dns = { name = "c", port = 80 }; host = "c"; servers = []
=> service.nginx-80: pool = "a"
=> route: header = ["x-key: ~(?i)^one$"]; pool = "b"
=> route: header = ["x-key: ~^two"]; not = { header = ["x-key: ~(?i)^one$"] }; pool = "b"
=> route: header = ["x-key: ~(?i)^three$"]; not = { header = ["x-key: ~(?i)^one$", "x-key: ~^two"] }; pool = "c"

map $cookie_c $p { default a; one b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: cookie = ["c=~(?i)^one$"]; pool = "b"

map $arg_q $p { default a; one b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: query = ["q=~(?i)^one$"]; pool = "b"

map $uri $p { default a; /one b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default a; *.b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "~(?i)^\\*\\.b\\.example$"; pool = "b"

map $host $p { default a; ~^b b; "" b; B.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "~(?i)^$"; pool = "b"
=> route: host = "b.example"; pool = "b"
=> route: host = "~^b"; not = { host = ["~(?i)^$", "b.example"] }; pool = "b"

map $request_method $p { default a; post b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $http_a $p { default a; ~(?<x>y) b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $http_a $p { default a; ~(?P<x>y) b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $http_a $p { default a; \~x.y b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^\\~x\\.y$"]; pool = "b"

geo $p { default a; 10.0.0.0/8 b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: source = ["10.0.0.0/8"]; pool = "b"

geo $p { default a; 10.0.0.0/8 b; 10.1.0.0/16 a; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

geo $p { default a; 10.0.0.1-10.0.0.9 b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

geo $http_a $p { default a; 10.0.0.0/8 b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

geo $p { default a; proxy 10.0.0.1; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

geo $p { default a; delete 10.0.0.1; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default a; hostnames; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default a; volatile; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "b.example"; pool = "b"

map $host $p { default a; include /map; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "b.example"; pool = "b"
=> lost 2: no such file

map $host $p { default a; b.example $http_a; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default a; b.example "{b}"; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default $http_a; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host p { default a; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds

map $host $p { default a; b.example b; }
map $host $p { default b; b.example a; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "a"
=> route: host = "b.example"; pool = "b"
=> lost 3: a route can only compare parts of the request

map "$host" x $p { default a; b.example b; }
server { listen 80; location / { proxy_pass http://$p; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: a route can only compare parts of the request
=> lost 3: the target is computed, but a route's pool is fixe
=> lost 3: it has no target that Weir supports; Weir responds
"#;

#[test]
fn map_in_a_condition_becomes_conditions_on_the_request() {
    assert_rows(MAP_IN_A_CONDITION_BECOMES_CONDITIONS_ON_THE_REQUEST);
}

const MAP_IN_A_CONDITION_BECOMES_CONDITIONS_ON_THE_REQUEST: &str = r#"
map $http_a $m { default 0; x 1; y 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^x$", "a: ~(?i)^y$"]; status = 403

map $http_a $m { default 0; x 1; y 1; }
server { listen 80; if ($m = 1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^x$", "a: ~(?i)^y$"]; status = 403

map $http_a $m { default 0; x 1; y 1; }
server { listen 80; if ($m != 1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: not = { header = ["a: ~(?i)^x$", "a: ~(?i)^y$"] }; status = 403

map $http_a $m { default 1; x 0; y ""; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: not = { header = ["a: ~(?i)^x$", "a: ~(?i)^y$"] }; status = 403

map $http_a $m { default 0; x 0; }
server { listen 80; if ($m) { return 403; }
location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"

map $http_a $m { default 1; x 1; }
server { listen 80; if ($m) { return 403; }
location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> remark 4: nginx responds before it selects a location

map $host $m { default 0; x.example 1; y.example 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: host = "x.example"; status = 403
=> route: host = "y.example"; status = 403

map $uri $m { default 0; /x 1; /y 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location

map $http_a $m { default 0; ~x 1; y 2; }
server { listen 80; if ($m = 2) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location

map $http_a $m { default 0; ~x 1; y 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~x", "a: ~(?i)^y$"]; status = 403

map $http_a $m { default 0; x 1; y 2; }
server { listen 80; if ($m = 2) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: header = ["a: ~(?i)^y$"]; status = 403

geo $m { default 0; 10.0.0.0/8 1; fd00::/8 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: source = ["10.0.0.0/8", "fd00::/8"]; status = 403

geo $m { default 1; 10.0.0.0/8 0; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: not = { source = ["10.0.0.0/8"] }; status = 403

geo $m { default 0; 10.0.0.0/8 1; 10.1.0.0/16 0; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location

geo $m { default 0; ranges; 10.0.0.0-10.0.0.9 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location

map $geoip_country $m { default 0; X 1; }
server { listen 80; if ($m) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location

map $http_a $m { default 0; x 1; }
server { listen 80; if ($m ~ 1) { return 403; } location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 403
=> lost 2: a route can only compare parts of the request
=> unguarded 3: a route cannot test this condition; Weir rejects e
=> unguarded 3: nginx responds before it selects a location
"#;

#[test]
fn map_of_a_field_becomes_a_table() {
    assert_rows(MAP_OF_A_FIELD_BECOMES_A_TABLE);
}

const MAP_OF_A_FIELD_BECOMES_A_TABLE: &str = r##"
map $http_a $m { default x; one two; three four; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-M: {map.m}"]
=> map.m: key = "{header.a}"; entries = ["one two", "three four"]; ignore_case = true; default = "x"

map $http_a $m { one two; ~^x y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-M: {map.m}"]
=> map.m: key = "{header.a}"; entries = ["(?i)^one$ two", "^x y"]; kind = "regex"

map $http_a $m { default ""; ~*^x\sy z; "a b" c; three four; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-M: {map.m}"]
=> map.m: key = "{header.a}"; entries = ["(?i)^a\\x20b$ c", "(?i)^three$ four", "(?i)^x\\sy z"]; kind = "regex"

map $http_a $m { default d; "" c; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-M: {map.m}"]
=> map.m: key = "{header.a}"; entries = ["(?i)^$ c"]; kind = "regex"; default = "d"

map $http_a $m { default d; "a\tb" c; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; x ""; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; x " y"; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; "#x" y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; ~#x y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $request_uri $m { default d; /x y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $geoip_country $m { default d; X y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

geo $m { default d; 10.0.0.0/8 y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; ~(?<n>x) y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m-x { default d; x y; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; x y; } map $http_a $unused { default d; x y; } map $http_b $other { default d; x y;
}
server { listen 80; location / { proxy_set_header X-M $m; add_header X-N v-${m}-$other; return 200 "$other"; } }
=> service.nginx-80: pool = "no-servers"
=> route: status = 200; body = "{map.other}"; add_response_header = ["X-N: v-{map.m}-{map.other}"]
=> map.m: key = "{header.a}"; entries = ["x y"]; ignore_case = true; default = "d"
=> map.other: key = "{header.b}"; entries = ["x y"]; ignore_case = true; default = "d"
=> lost 2: a route can only compare parts of the request
=> lost 4: it does not apply to any imported route to a pool

map $http_a $m { default d; x y; }
server { listen 80; location / { root /srv; add_header X-N v-${m}; } }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-N: v-{map.m}", status = SUCCESSES }]
=> map.m: key = "{header.a}"; entries = ["x y"]; ignore_case = true; default = "d"

map $http_a $m { default d; x $host; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
=> lost 3: the value contains an unsupported variable or a na

map $http_a $m { default d; proxy y; delete z; }
server { listen 80; location / { proxy_set_header X-M $m; proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-M: {map.m}"]
=> map.m: key = "{header.a}"; entries = ["proxy y", "delete z"]; ignore_case = true; default = "d"
"##;
