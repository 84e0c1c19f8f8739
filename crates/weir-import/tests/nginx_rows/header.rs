//! Tests header fields and rewritten paths.

use super::assert_rows;

#[test]
fn request_fields_are_set_added_or_removed() {
    assert_rows(REQUEST_FIELDS_ARE_SET_ADDED_OR_REMOVED);
}

const REQUEST_FIELDS_ARE_SET_ADDED_OR_REMOVED: &str = r#"
location / { proxy_pass http://a; proxy_set_header X-A b; proxy_set_header X-B ""; proxy_set_header X-C $host; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: b", "X-C: {host}"]; remove_header = ["X-B"]

location / { proxy_pass http://a; proxy_set_header X-A b; proxy_set_header x-a c; proxy_set_header X-A "";
proxy_set_header X-A d; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: b"]; add_header = ["x-a: c", "X-A: d"]

location / { proxy_pass http://a; proxy_set_header X-A ""; proxy_set_header X-A b; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-A: b"]

location / { proxy_pass http://a;
proxy_set_header Host $proxy_host;
proxy_set_header Upgrade $http_upgrade;
proxy_set_header Connection close;
proxy_set_header X-A; }
=> service.nginx-80: pool = "a"
=> remark 3: Weir already does this, or a key of the service or
=> remark 4: Weir already does this, or a key of the service or
=> remark 5: Weir already does this, or a key of the service or
=> lost 6: the field or its value is missing

location / { proxy_pass http://a;
proxy_set_header Host b.example; }
=> service.nginx-80: pool = "a"
=> remark 3: Weir already does this, or a key of the service or

location / { proxy_pass http://a;
proxy_set_header Host $geoip_country;
proxy_set_header X-A $geoip_country; }
=> service.nginx-80: pool = "a"
=> lost 3: the value contains an unsupported variable or a na
=> lost 4: the value contains an unsupported variable or a na

location / { proxy_pass http://a;
proxy_set_header X-A $proxy_host; }
=> service.nginx-80: pool = "a"
=> lost 3: the value contains an unsupported variable or a na
"#;

#[test]
fn x_forwarded_for_is_set_for_the_service_or_the_route() {
    assert_rows(X_FORWARDED_FOR_IS_SET_FOR_THE_SERVICE_OR_THE_ROUTE);
}

const X_FORWARDED_FOR_IS_SET_FOR_THE_SERVICE_OR_THE_ROUTE: &str = r#"
location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header x-forwarded-for ${proxy_add_x_forwarded_for}; }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } location /x {
proxy_pass http://b; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; x_forwarded = { for = "append" }
=> route: path = "/x*"; pool = "b"; x_forwarded = { for = "keep" }
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } location /x {
proxy_pass http://b; proxy_set_header X-Forwarded-For $remote_addr; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; x_forwarded = { for = "append" }
=> route: path = "/x*"; pool = "b"; set_header = ["X-Forwarded-For: {client}"]
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header
X-Forwarded-Port $server_port; }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> route: pool = "a"; x_forwarded = { for = "append", port = "set" }
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Forwarded-Port $server_port; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; x_forwarded = { port = "set" }

location / { proxy_pass http://a; proxy_set_header x-forwarded-port 8080; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["x-forwarded-port: 8080"]

location / { proxy_pass http://a; proxy_set_header X-Port $server_port; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-Port: {listen_port}"]

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header
X-Forwarded-Port $server_port; } location /x { proxy_pass http://b; proxy_set_header X-Forwarded-For
$proxy_add_x_forwarded_for; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; x_forwarded = { for = "append" }
=> route: path = "/x*"; pool = "b"
=> route: pool = "a"; set_header = ["X-Forwarded-For: {client}"]; x_forwarded = { port = "set" }
=> remark 3: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header
X-Forwarded-For c; }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> route: pool = "a"; set_header = ["X-Forwarded-For: {forwarded_for}"]; add_header = ["X-Forwarded-For: c"]

location / { proxy_pass http://a; proxy_set_header X-Forwarded-For c; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-Forwarded-For: c"]

location / { proxy_pass http://a; limit_except GET { proxy_set_header X-Forwarded-For
$proxy_add_x_forwarded_for; deny all; } }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> route: not = { method = ["GET", "HEAD"] }; status = 403
=> route: pool = "a"; x_forwarded = { for = "keep" }
=> unguarded 2: weir.toml has no equivalent
=> unguarded 3: it is in the block that begins on line 2, which is

location / { proxy_pass http://a; if ($http_a = b) { proxy_set_header X-Forwarded-For
$proxy_add_x_forwarded_for; proxy_pass http://b; } }
=> service.nginx-80: pool = "a"; x_forwarded = { for = "append" }
=> route: header = ["a: b"]; pool = "b"
=> route: pool = "a"; x_forwarded = { for = "keep" }
=> remark 2: Weir already does this, or a key of the service or

location / { proxy_pass http://a; proxy_set_header X-Other $proxy_add_x_forwarded_for; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_header = ["X-Other: {forwarded_for}"]

upstream c { server 10.0.0.7; } map $http_a $b { X-Forwarded-For $proxy_add_x_forwarded_for; }
server { listen 80; location / { proxy_pass http://a; } }
=> service.nginx-80: pool = "a"
=> lost 2: a route can only compare parts of the request
"#;

#[test]
fn response_fields_are_added_for_the_statuses_of_nginx() {
    assert_rows(RESPONSE_FIELDS_ARE_ADDED_FOR_THE_STATUSES_OF_NGINX);
}

const RESPONSE_FIELDS_ARE_ADDED_FOR_THE_STATUSES_OF_NGINX: &str = r#"
location / { proxy_pass http://a; add_header X-A b; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]

location / { proxy_pass http://a; add_header X-A b always; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = ["X-A: b"]

location / { proxy_pass http://a; add_header X-A b; proxy_hide_header x-a; proxy_hide_header X-C; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_response_header = [{ header = "X-A: b", status = SUCCESSES }]; remove_response_header =
.. ["X-C"]

location / { proxy_pass http://a; add_header X-A b always; proxy_hide_header X-A; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; set_response_header = ["X-A: b"]

location / { proxy_pass http://a;
proxy_hide_header;
add_header X-A;
add_header X-B $geoip_country; }
=> service.nginx-80: pool = "a"
=> lost 3: the field is missing
=> lost 4: the field or its value is missing
=> lost 5: the value contains an unsupported variable or a na

location / { add_header X-A b; return 200 t; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 200; body = "t"; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 201; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 201; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 206; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 206; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 301 https://b.example/; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example/"; status = 301; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 302 https://b.example/; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example/"; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 303 https://b.example/; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example/"; status = 303; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 304; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 304; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 307 https://b.example/; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example/"; status = 307; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 308 https://b.example/; }
=> service.nginx-80: pool = "no-servers"
=> route: redirect = "https://b.example/"; status = 308; add_response_header = ["X-A: b"]

location / { add_header X-A b; return 202; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 202

location / { add_header X-A b; return 404; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404

location / { add_header X-A b always; return 404; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404; add_response_header = ["X-A: b"]

location / { add_header Content-Type text/html; add_header content-type text/css; return 200 t; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 200; body = "t"; set_response_header = ["content-type: text/css"]

location / {
add_header Content-Length 0; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> remark 3: a response with this status has no body and no `Co

location / {
add_header content-length 0 always; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> remark 3: a response with this status has no body and no `Co

location / {
add_header Content-Length 0; return 200; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 200
=> lost 3: Content-Length cannot be changed here

location / {
add_header Content-Length 5; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> lost 3: Content-Length cannot be changed here

location / {
add_header X-Zero 0; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204; add_response_header = ["X-Zero: 0"]

location / {
add_header X-A $geoip_country; return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> lost 3: the value contains an unsupported variable or a na
"#;

#[test]
fn expires_becomes_cache_control() {
    assert_rows(EXPIRES_BECOMES_CACHE_CONTROL);
}

const EXPIRES_BECOMES_CACHE_CONTROL: &str = r#"
location / { proxy_pass http://a; expires 30d; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: max-age=2592000", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires epoch; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: no-cache", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires max; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: max-age=315360000", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires -1; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: no-cache", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires off; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route with `files` or a fixed response

location / { proxy_pass http://a; expires 2y; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: max-age=63072000", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires 3M; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; add_response_header = [{ header = "Cache-Control: max-age=7776000", status = SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E

location / { proxy_pass http://a; expires @15h; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route with `files` or a fixed response

location / { proxy_pass http://a; expires; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route with `files` or a fixed response

location / { root /srv; expires 1h; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }; add_response_header = [{ header = "Cache-Control: max-age=3600", status =
.. SUCCESSES }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E
"#;

#[test]
fn proxy_redirect_replaces_fields_of_redirects() {
    assert_rows(PROXY_REDIRECT_REPLACES_FIELDS_OF_REDIRECTS);
}

const PROXY_REDIRECT_REPLACES_FIELDS_OF_REDIRECTS: &str = r#"
location / { proxy_pass http://a; proxy_redirect off; }
=> service.nginx-80: pool = "a"

location / { proxy_pass http://a; proxy_redirect http://in.example/ /out/; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "^http://in\\.example/(.*)$", to =
.. "/out/{1}" }, { name = "Refresh", regex = "^(.*url=)http://in\\.example/(.*)$", to = "{1}/out/{2}" }]

location / { proxy_pass http://a; proxy_redirect ~^http://in(.*)/(x)$ /out/$2$1; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "^http://in(.*)/(x)$", to =
.. "/out/{2}{1}" }, { name = "Refresh", regex = "^(.*url=)http://in(.*)/(x)$", to = "{1}/out/{3}{2}" }]

location / { proxy_pass http://a; proxy_redirect ~*http://IN(.*)$ /$1; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "(?i)http://IN(.*)$", to = "/{1}" }]

location / { proxy_pass http://a; proxy_redirect http://$host/ /; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect http://in/ $scheme://out/; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect http://in/ "/{x}/";
=> service.nginx-80: pool = "a"
=> lost 1: the block has no closing brace; nginx rejects the
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect http://in/ "/x}/"; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect ~^(.)(.)(.)(.)(.)(.)(.)(.)$ /$8$7; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "^(.)(.)(.)(.)(.)(.)(.)(.)$", to =
.. "/{8}{7}" }, { name = "Refresh", regex = "^(.*url=)(.)(.)(.)(.)(.)(.)(.)(.)$", to = "{1}/{9}{8}" }]

location / { proxy_pass http://a; proxy_redirect ~( /; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect default; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect off x; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "^off(.*)$", to = "x{1}" }, { name =
.. "Refresh", regex = "^(.*url=)off(.*)$", to = "{1}x{2}" }]

location / { proxy_pass http://a; proxy_redirect; }
=> service.nginx-80: pool = "a"
=> lost 2: Weir does not rewrite responses this way

location / { proxy_pass http://a; proxy_redirect ~^(.)(.)(.)(.)(.)(.)(.)(.)(.)$ /$9$8$7$6$5$4$3$2$1; }
=> service.nginx-80: pool = "a"
=> route: pool = "a"; replace_response_header = [{ name = "Location", regex = "^(.)(.)(.)(.)(.)(.)(.)(.)(.)$", to =
.. "/{9}{8}{7}{6}{5}{4}{3}{2}{1}" }]
"#;

#[test]
fn rewrite_with_break_becomes_rewrite_of_a_route() {
    assert_rows(REWRITE_WITH_BREAK_BECOMES_REWRITE_OF_A_ROUTE);
}

const REWRITE_WITH_BREAK_BECOMES_REWRITE_OF_A_ROUTE: &str = r#"
location / { rewrite ^/x/(.*)$ /y/$1 break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> route: path_regex = "^/x/(.*)$"; pool = "a"; rewrite = "/y/{1}"
=> route: pool = "a"

location /x { rewrite ^/x(/.*)$ $1 break; rewrite ^/y/(.*)/(.*)$ /$2/$1?z=1 break; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; path_regex = "^/x/(.*)$"; pool = "a"; rewrite = "/{1}"
=> route: path = "/x*"; path_regex = "^/y/(.*)/(.*)$"; pool = "a"; rewrite = "/{2}/{1}?z=1"
=> route: path = "/x*"; pool = "a"
=> route: status = 404

location / { rewrite ^/x/(.*)$ /y/$0 break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x/(.*)$ /y/$host break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x/(.*)$ /y?a=1?b=2 break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x/(.*)$ "/{a}" break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x/(.*)$ "/a}" break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x$ /y; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route rewrites a path only as the last step, lik

location / { rewrite ^/x$ /y break extra; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location / { rewrite ^/x/(.*)$ /y$ break; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: a route's `rewrite` cannot express the new path

location ~ ^/v { rewrite ^/v/(.*)$ /$1 break; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/v"; pool = "a"; rewrite = { regex = "^/v/(.*)$", to = "/{1}" }
=> route: status = 404
"#;

#[test]
fn locations_require_authentication() {
    assert_rows(LOCATIONS_REQUIRE_AUTHENTICATION);
}

const LOCATIONS_REQUIRE_AUTHENTICATION: &str = r#"
location / { root /srv; auth_basic r; auth_basic_user_file /f; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }; basic_auth = { file = "/f", realm = "r" }

auth_request /auth; location / { root /srv; add_header X-A b; }
location = /auth { proxy_pass http://b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/auth"; pool = "b"; forward_auth = { pool = "b", path = "/auth", timeout = "60s" }
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]; forward_auth
.. = { pool = "b", path = "/auth", timeout = "60s" }

location / { auth_request /auth; auth_request_set $u $upstream_http_x_user; proxy_set_header X-User $u;
proxy_set_header X-B c; proxy_pass http://a; }
location = /auth { proxy_pass http://b; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/auth"; pool = "b"
=> route: pool = "a"; set_header = ["X-B: c"]; forward_auth = { pool = "b", path = "/auth", timeout = "60s",
.. copy_header = ["X-User"] }

location / { auth_request_set $u $upstream_http_x_user; proxy_set_header X-User $u; proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: the value contains an unsupported variable or a na
=> lost 2: it does not protect any imported route
"#;
