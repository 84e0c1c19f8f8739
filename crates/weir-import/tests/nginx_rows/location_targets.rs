//! Rows about the targets of locations, and clients that locations reject.

use super::assert_rows;

#[test]
fn files_below_root_are_served_for_paths_without_location() {
    assert_rows(FILES_BELOW_ROOT_ARE_SERVED_FOR_PATHS_WITHOUT_LOCATION);
}

const FILES_BELOW_ROOT_ARE_SERVED_FOR_PATHS_WITHOUT_LOCATION: &str = r#"
root /srv;
location /a { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"
=> route: files = { root = "/srv" }

root /srv;
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> lost 2: no imported route with `files` or a fixed response

location /a { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"
=> route: status = 404

root /srv; allow 10.0.0.0/8; deny 10.1.0.0/16; deny all; add_header X-A b;
location = /a { return 204; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a"; status = 204; add_response_header = ["X-A: b"]
=> route: source = ["10.0.0.0/8"]; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: source = ["10.1.0.0/16"]; status = 403; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]
=> route: status = 403; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]

root $x;
location /a { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/a*"; pool = "a"
=> route: status = 404

root /srv;
return 204;
=> service.nginx-80: pool = "no-servers"
=> route: status = 204
=> remark 2: nginx responds before it selects a file

root /srv; index i.html j.html; try_files $uri /x.html;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv", index = ["i.html", "j.html"], try = ["{path}", "/x.html"] }
"#;

#[test]
fn location_without_target_serves_files() {
    assert_rows(LOCATION_WITHOUT_TARGET_SERVES_FILES);
}

const LOCATION_WITHOUT_TARGET_SERVES_FILES: &str = r#"
location / { root /srv/www/; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv/www" }

location / { root /; index a.html; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/", index = ["a.html"] }

location /x/ { alias /srv/y/; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x/*"; files = { root = "/srv/y", strip = "/x" }
=> route: status = 404

location /x { alias srv/$y; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> route: status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: no imported route with `files` or a fixed response

location /x { root html; try_files $uri $uri/ =404; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/usr/share/nginx/html", try = ["{path}", "{path}/"] }
=> route: status = 404

location /x { root /srv; try_files $uri /x/$args; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/srv" }
=> route: status = 404
=> lost 2: `try` of a route's `files` cannot express it

location /x { root /srv; internal; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> route: status = 404
=> unguarded 2: no imported route with `files` or a fixed response

location /x { root /srv; fastcgi_pass 127.0.0.1:9000; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 503
=> route: status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: no imported route with `files` or a fixed response
=> lost 2: Weir supports only HTTP servers

location /x { root /srv; auth_jwt x; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: no imported route with `files` or a fixed response
=> unguarded 2: weir.toml has no equivalent

location /x { root /srv; auth_jwt off; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/srv" }
=> route: status = 404
=> lost 2: weir.toml has no equivalent

location /x { root /srv; allow 10.0.0.1; deny all; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; source = ["10.0.0.1"]; files = { root = "/srv" }
=> route: path = "/x*"; status = 403
=> route: status = 404

root /a;
location /x { root /srv; alias /srv/z; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/srv/z", strip = "/x" }
=> route: files = { root = "/a" }
=> lost 3: no imported route with `files` or a fixed response

root /a; index q.html;
location /x { index i.html; }
location /y { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/a", index = ["i.html"] }
=> route: path = "/y*"; pool = "a"
=> route: files = { root = "/a", index = ["q.html"] }

location /x { index i.html; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> route: status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: no imported route with `files` or a fixed response

location / { root /srv; autoindex off; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> remark 2: Weir never does this

location / { root /srv; autoindex on; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 2: a route's `files` does not list directories
"#;

#[test]
fn restricted_location_rejects_requests() {
    assert_rows(RESTRICTED_LOCATION_REJECTS_REQUESTS);
}

const RESTRICTED_LOCATION_REJECTS_REQUESTS: &str = r#"
location /x { internal; proxy_pass http://a; }
location / { proxy_pass http://b; }
=> service.nginx-80: pool = "b"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404

location ~ ^/x { internal; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x"; status = 404
=> route: status = 404

location ~ \.(png|jpg)$ { internal; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.png"; status = 404
=> route: path = "*.jpg"; status = 404
=> route: status = 404

location /x { auth_request /auth; proxy_pass http://a; }
location = /auth { proxy_pass http://b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/auth"; pool = "b"
=> route: path = "/x*"; pool = "a"; forward_auth = { pool = "b", path = "/auth", timeout = "60s" }
=> route: status = 404

location /x { auth_request /none; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: no location has this path

location /x { auth_jwt realm; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: weir.toml has no equivalent

location /x { auth_jwt off; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> lost 2: weir.toml has no equivalent

location /x { auth_request off; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> remark 2: this is nginx's default

location /x { limit_except GET { deny all; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; not = { method = ["GET", "HEAD"] }; status = 403
=> route: path = "/x*"; pool = "a"
=> route: status = 404

location /x { limit_except POST PUT { deny all; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; not = { method = ["POST", "PUT"] }; status = 403
=> route: path = "/x*"; pool = "a"
=> route: status = 404

location /x { limit_except GET {
allow 10.0.0.1;
deny all; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; not = { method = ["GET", "HEAD"] }; status = 403
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> unguarded 2: weir.toml has no equivalent
=> unguarded 3: it is in the block that begins on line 2, which is
=> unguarded 4: it is in the block that begins on line 2, which is

location /x { limit_except POST { deny 10.0.0.1; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; not = { method = ["POST"] }; status = 403
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> unguarded 2: weir.toml has no equivalent

location ~ ^/x { limit_except POST { deny all; } proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x"; not = { method = ["POST"] }; status = 403
=> route: path_regex = "^/x"; pool = "a"
=> route: status = 404
"#;

#[test]
fn access_rules_apply_to_pools_and_files_but_not_to_responses() {
    assert_rows(ACCESS_RULES_APPLY_TO_POOLS_AND_FILES_BUT_NOT_TO_RESPONSES);
}

const ACCESS_RULES_APPLY_TO_POOLS_AND_FILES_BUT_NOT_TO_RESPONSES: &str = r#"
location /x { allow 10.0.0.1; deny all; return 204; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 204
=> route: status = 404
=> remark 2: nginx handles `return` first

location /x { deny 10.0.0.1;
return 301 https://b.example/; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; redirect = "https://b.example/"; status = 301
=> route: status = 404
=> remark 2: nginx handles `return` first

location /x { allow 10.0.0.1; deny all; return 444; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; close = true
=> route: status = 404
=> remark 2: nginx handles `return` first

location /x/ { deny 10.0.0.1; proxy_pass http://a/y/; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x/*"; source = ["10.0.0.1"]; status = 403
=> route: path = "/x/*"; pool = "a"; rewrite = "/y/{rest}"
=> route: status = 404

location /x { deny 10.0.0.1; add_header X-A b; add_header X-C d always; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; source = ["10.0.0.1"]; status = 403; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }, "X-C: d"]
=> route: path = "/x*"; pool = "a"; add_response_header = [{ header = "X-A: b", status = SUCCESSES }, "X-C: d"]
=> route: status = 404

deny 10.0.0.1;
location /x { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; source = ["10.0.0.1"]; status = 403
=> route: path = "/x*"; pool = "a"
=> route: status = 404
"#;

#[test]
fn location_without_supported_target_responds_with_an_error() {
    assert_rows(LOCATION_WITHOUT_SUPPORTED_TARGET_RESPONDS_WITH_AN_ERROR);
}

const LOCATION_WITHOUT_SUPPORTED_TARGET_RESPONDS_WITH_AN_ERROR: &str = r#"
location /x { fastcgi_pass 127.0.0.1:9000; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 503
=> route: status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: Weir supports only HTTP servers

location /x { fastcgi_pass 127.0.0.1:9000; deny all; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: it has no target that Weir supports; Weir responds
=> unguarded 2: Weir supports only HTTP servers

location /x { deny all; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404

location /x { deny 10.0.0.1; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: it has no target that Weir supports; Weir responds

location /x { allow 10.0.0.1; deny all; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: it has no target that Weir supports; Weir responds

location /x { allow 10.0.0.1; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; source = ["10.0.0.1"]; status = 404
=> route: path = "/x*"; status = 404
=> route: status = 404
=> unguarded 2: it has no target that Weir supports; Weir responds

location /x { content_by_lua_file /x.lua; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> route: status = 404
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: weir.toml has no equivalent

location /x { internal; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> route: status = 404

location /x { auth_basic r; auth_basic_user_file /f; fastcgi_pass 127.0.0.1:9000; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: it has no target that Weir supports; Weir responds
=> unguarded 2: it does not protect any imported route
=> unguarded 2: Weir supports only HTTP servers

location /x { auth_request /none; deny all; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 403
=> route: status = 404
=> unguarded 2: it does not protect any imported route
"#;

#[test]
fn location_lines_without_effect_on_the_route_are_noted() {
    assert_rows(LOCATION_LINES_WITHOUT_EFFECT_ON_THE_ROUTE_ARE_NOTED);
}

const LOCATION_LINES_WITHOUT_EFFECT_ON_THE_ROUTE_ARE_NOTED: &str = r#"
location /x { proxy_intercept_errors off; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> remark 2: Weir never does this

location /x { proxy_intercept_errors on; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> lost 2: a service's `error_pages` accepts only files and f

location /x { autoindex off; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> remark 2: Weir never does this

location /x { unknown_directive y; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> lost 2: weir.toml has no equivalent

location /x { proxy_pass http://a;
proxy_pass http://b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> lost 3: an earlier directive determines the action
"#;

#[test]
fn text_has_the_media_type_of_default_type() {
    assert_rows(TEXT_HAS_THE_MEDIA_TYPE_OF_DEFAULT_TYPE);
}

const TEXT_HAS_THE_MEDIA_TYPE_OF_DEFAULT_TYPE: &str = r#"
location /x { default_type application/json; return 200 "{}"; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 200; body = "{}"; set_response_header = ["Content-Type: application/json"]
=> route: status = 404

location /x { default_type application/json; return 200; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 200
=> route: status = 404
=> lost 2: no imported route with `files` or a fixed response

location /x { default_type text/plain; return 200 t; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 200; body = "t"
=> route: status = 404
=> lost 2: no imported route with `files` or a fixed response

location /x { default_type text/html; add_header Content-Type text/css; return 200 t; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 200; body = "t"; set_response_header = ["Content-Type: text/css"]
=> route: status = 404
=> lost 2: no imported route with `files` or a fixed response

default_type text/html;
location /x { return 200 t; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 200; body = "t"; set_response_header = ["Content-Type: text/html"]
=> route: status = 404
"#;

#[test]
fn named_location_receives_requests_for_missing_files() {
    assert_rows(NAMED_LOCATION_RECEIVES_REQUESTS_FOR_MISSING_FILES);
}

const NAMED_LOCATION_RECEIVES_REQUESTS_FOR_MISSING_FILES: &str = r#"
root /srv;
location / { try_files $uri @app; }
location @app { proxy_pass http://a; proxy_set_header X-A b; proxy_buffering off;
unknown_directive x; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv", try = ["{path}"], pool = "a" }; set_header = ["X-A: b"]
=> remark 4: Weir has no such setting
=> lost 5: weir.toml has no equivalent

root /srv; add_header X-A b;
location / { try_files $uri @app; }
location @app { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv", try = ["{path}"], pool = "a" }; add_response_header = [{ header = "X-A: b",
.. status = SUCCESSES }]

root /srv;
location / { try_files $uri @app; add_header X-A b; }
location @app { proxy_pass http://a; add_header X-C d; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv", try = ["{path}"], pool = "a" }; add_response_header = [{ header = "X-C: d",
.. status = SUCCESSES }]
=> lost 3: a route's responses with files have the same heade
=> lost 4: a route's responses with files have the same heade

location / { proxy_pass http://a; }
location @app { proxy_pass http://b; }
location @other { return 204; }
=> service.nginx-80: pool = "a"
=> lost 3: no `try_files` or `error_page` that Weir supports
=> lost 4: no `try_files` or `error_page` that Weir supports

root /srv;
location /f { error_page 404 /missing; }
location /missing { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/missing*"; pool = "a"
=> route: path = "/f*"; method = ["GET", "HEAD"]; files = { root = "/srv", pool = "a" }; rewrite = "/missing?";
.. response_status = 404
=> route: path = "/f*"; files = { root = "/srv" }
=> route: files = { root = "/srv" }

root /srv;
location ~ ^/f { error_page 404 /missing; deny 10.0.0.1; add_header X-A b; }
location = /missing { proxy_pass http://a; proxy_set_header X-B c; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/missing"; pool = "a"; set_header = ["X-B: c"]
=> route: path_regex = "^/f"; source = ["10.0.0.1"]; method = ["GET", "HEAD"]; status = 403; add_response_header =
.. [{ header = "X-A: b", status = SUCCESSES }]
=> route: path_regex = "^/f"; source = ["10.0.0.1"]; status = 403; add_response_header = [{ header = "X-A: b",
.. status = SUCCESSES }]
=> route: path_regex = "^/f"; method = ["GET", "HEAD"]; files = { root = "/srv", pool = "a" }; set_header = ["X-B:
.. c"]; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]; rewrite = "/missing?"; response_status =
.. 404
=> route: path_regex = "^/f"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv" }

location /f { error_page 404 /missing; }
location = /missing { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/missing"; pool = "a"
=> route: path = "/f*"; method = ["GET", "HEAD"]; pool = "a"; rewrite = "/missing?"; response_status = 404
=> route: path = "/f*"; status = 404
=> route: status = 404
"#;

#[test]
fn mirror_target_is_converted_last() {
    assert_rows(MIRROR_TARGET_IS_CONVERTED_LAST);
}

const MIRROR_TARGET_IS_CONVERTED_LAST: &str = r#"
location = /copy { internal; proxy_pass http://b; proxy_set_header X-A b; client_max_body_size 1k; }
location / { mirror /copy; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: pool = "a"; mirror = { pool = "b", body = 1048576, concurrent = 10000, path = "/copy" }
=> unguarded 2: copies have the same header fields as the original

location / { mirror /copy; proxy_pass http://a; }
location ~ ^/copy$ { internal; proxy_pass http://b; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/copy$"; status = 404
=> lost 2: no location has this path

location /copy { proxy_pass http://b; proxy_connect_timeout 3s; }
location / { mirror /copy; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy*"; pool = "b"; timeouts = { connect = "3s" }
=> route: pool = "a"; mirror = { pool = "b", body = 1048576, concurrent = 10000, path = "/copy" }

location = /copy { internal; proxy_pass http://b;
proxy_pass_request_body off; }
location / { mirror /copy; proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/copy"; status = 404
=> route: pool = "a"; mirror = { pool = "b", body = 0, concurrent = 10000, path = "/copy" }
"#;

#[test]
fn access_log_of_a_location_can_be_off() {
    assert_rows(ACCESS_LOG_OF_A_LOCATION_CAN_BE_OFF);
}

const ACCESS_LOG_OF_A_LOCATION_CAN_BE_OFF: &str = r#"
access_log /var/log/x;
location / { proxy_pass http://a; }
location /x { access_log off; proxy_pass http://a; }
location /y { access_log off; if ($http_a = b) { return 204; } return 205; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; access_log = "/var/log/x"
=> route: path = "/x*"; pool = "a"; access_log = false
=> route: path = "/y*"; header = ["a: b"]; status = 204; access_log = false
=> route: path = "/y*"; status = 205; access_log = false

access_log /var/log/x;
location /x { access_log off; return 204; }
location / { proxy_pass http://a; }
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }; access_log = "/var/log/x"
=> route: path = "/x*"; status = 204; access_log = false
"#;

#[test]
fn plain_http_requests_to_a_server_with_ssl_on_are_rejected() {
    assert_rows(PLAIN_HTTP_REQUESTS_TO_A_SERVER_WITH_SSL_ON_ARE_REJECTED);
}

const PLAIN_HTTP_REQUESTS_TO_A_SERVER_WITH_SSL_ON_ARE_REJECTED: &str = r#"
listen 443; ssl on; ssl_certificate /c.crt; ssl_certificate_key /c.key;
location /
{ proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 400
=> service.nginx-443: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt" }
=> remark 2: Weir finds the key by the name of the certificate

listen 443 ssl; ssl off; ssl_certificate /c.crt; ssl_certificate_key /c.key;
location /
{ proxy_pass http://a; }
=> service.nginx-80: pool = "a"
=> service.nginx-443: listen = ["0.0.0.0:443"]; pool = "a"; tls = { certificates = "/c.crt" }
=> remark 2: Weir finds the key by the name of the certificate
=> remark 2: this is nginx's default
"#;

#[test]
fn unsupported_try_files_and_paths_are_reported() {
    assert_rows(UNSUPPORTED_TRY_FILES_AND_PATHS_ARE_REPORTED);
}

const UNSUPPORTED_TRY_FILES_AND_PATHS_ARE_REPORTED: &str = r#"
location / { root /srv;
try_files $uri $uri/ /index.php?$args; }
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: `try` of a route's `files` cannot express it

root /srv;
try_files $uri $uri/ /index.php?$args;
location /x { proxy_pass http://a; }
location /y { index i.html; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: path = "/y*"; files = { root = "/srv", index = ["i.html"] }
=> route: files = { root = "/srv" }
=> lost 3: `try` of a route's `files` cannot express it

location /x* { return 204; }
=> service.nginx-80: pool = "no-servers"
=> route: status = 404
=> lost 2: `*` in a route's `path` is a wildcard
"#;

/// Clients must not receive the source code of programs, such as PHP files.
#[test]
fn files_that_other_locations_handle_are_not_sent() {
    assert_rows(FILES_THAT_OTHER_LOCATIONS_HANDLE_ARE_NOT_SENT);
}

const FILES_THAT_OTHER_LOCATIONS_HANDLE_ARE_NOT_SENT: &str = r#"
root /srv;
location / {
try_files $uri /index.php; }
location ~ \.php$ { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.php"; pool = "a"
=> route: files = { root = "/srv", try = ["{path}"] }
=> lost 4: nginx passes requests for missing files to the loc

root /srv;
location / {
index index.html index.php; }
location ~ \.php$ { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.php"; pool = "a"
=> route: files = { root = "/srv", index = ["index.html"] }
=> lost 4: index.php is not imported: nginx passes requests f

root /srv;
index index.php;
location ~ \.php$ { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.php"; pool = "a"
=> route: files = { root = "/srv", index = [] }
=> lost 3: index.php is not imported: nginx passes requests f

root /srv;
location /blog {
index index.php; try_files $uri $uri/ =404; }
location /blog/index { return 403; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/blog/index*"; status = 403
=> route: path = "/blog*"; files = { root = "/srv", index = [], try = ["{path}", "{path}/"] }
=> route: files = { root = "/srv" }
=> lost 4: index.php is not imported: nginx passes requests f

root /srv;
location / { index index.php; try_files $uri /index.php; }
location ^~ /index { }
location ~ \.php$ { proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index*"; files = { root = "/srv" }
=> route: path = "*.php"; pool = "a"
=> route: files = { root = "/srv", index = ["index.php"], try = ["{path}", "/index.php"] }

root /srv;
location / { try_files $uri /index.html; }
location = /index.html {
root /other; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/other" }
=> route: files = { root = "/srv", try = ["{path}"] }
=> lost 3: nginx passes requests for missing files to the loc

root /srv;
location / { try_files $uri /index.html; }
location = /index.html { internal; add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; status = 404
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header =
.. "X-A: b", status = SUCCESSES, file = "/index.html" }]
"#;

#[test]
fn capture_groups_of_a_location_become_those_of_its_route() {
    assert_rows(CAPTURE_GROUPS_OF_A_LOCATION_BECOME_THOSE_OF_ITS_ROUTE);
}

const CAPTURE_GROUPS_OF_A_LOCATION_BECOME_THOSE_OF_ITS_ROUTE: &str = r#"
location ~* \.(png|jpg)$ { add_header X-Ext $1; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "(?i)\\.(png|jpg)$"; pool = "a"; add_response_header = [{ header = "X-Ext: {1}", status =
.. SUCCESSES }]
=> route: status = 404

location ~ \.(png|jpg)$ { add_header X-Ext $1; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.png"; pool = "a"
=> route: path = "*.jpg"; pool = "a"
=> route: status = 404
=> lost 2: the value contains an unsupported variable or a na

location ~ ^/x/(.*)$ { add_header X-Rest $1; proxy_pass http://a; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "^/x/(.*)$"; pool = "a"; add_response_header = [{ header = "X-Rest: {1}", status = SUCCESSES
.. }]
=> route: status = 404
"#;
