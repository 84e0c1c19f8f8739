//! Tests error pages, and the header fields of responses with pages.

use super::assert_rows;

#[test]
fn error_pages_become_those_of_the_service() {
    assert_rows(ERROR_PAGES_BECOME_THOSE_OF_THE_SERVICE);
}

const ERROR_PAGES_BECOME_THOSE_OF_THE_SERVICE: &str = r#"
location /p { proxy_pass http://a; }
error_page 500 502 /50x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500,502", file =
.. "/usr/share/nginx/html/50x.html" }]; normalize_path = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: status = 404

location /p { proxy_pass http://a; } root /srv/;
error_page 500 /50x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/srv/50x.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: files = { root = "/srv" }

root /http;
server { listen 80; location /p { proxy_pass http://a; }
error_page 500 /50x.html; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/http/50x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: files = { root = "/http" }

error_page 500 /50x.html;
server { listen 80; location /p { proxy_pass http://a; } }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/50x.html"
.. }]; normalize_path = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: status = 404

error_page 500 /50x.html;
server { listen 80; location /p { proxy_pass http://a; }
error_page 502 /x.html; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "502", file = "/usr/share/nginx/html/x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: status = 404
=> lost 2: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; } location = /50x.html { root /pages; internal; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/pages/50x.html" }]; normalize_path = {
.. encoded_slash = "decode" }
=> route: path = "/50x.html"; status = 404

location / { proxy_pass http://a; } location /50x.html { root /pages; internal; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/pages/50x.html" }]; normalize_path = {
.. encoded_slash = "decode" }
=> route: path = "/50x.html*"; status = 404

location / { proxy_pass http://a; } location = /50x.html { root /pages; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/pages/50x.html" }]; normalize_path = {
.. encoded_slash = "decode" }
=> route: path = "/50x.html"; files = { root = "/pages" }

location / { proxy_pass http://a; }
location = /50x.html { proxy_pass http://b; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/50x.html"; pool = "b"
=> lost 4: the location of the error page does not serve a fi

location / { proxy_pass http://a; }
location = /50x.html { return 200; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/50x.html"; status = 200
=> lost 4: the location of the error page does not serve a fi

location / { proxy_pass http://a; }
location = /50x.html { alias /x; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/50x.html"; files = { root = "/x", strip = "/50x.html" }
=> lost 4: the location of the error page does not serve a fi

location /p { proxy_pass http://a; } root /srv;
error_page 500 /none.html;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/p*"; pool = "a"
=> route: files = { root = "/srv" }
=> remark 3: /srv/none.html does not exist; nginx responds with

location / { proxy_pass http://a; } root /srv;
error_page 500 /x.html;
=> service.nginx-80: pool = "a"
=> lost 2: no imported route with `files` or a fixed response
=> lost 3: the error page is proxied to a server

location / { root /srv; }
error_page 500 @named;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: a service's `error_pages` accepts only files and f

location / { root /srv; }
error_page 500 /$host;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: a service's `error_pages` accepts only files and f

location / { root /srv; }
error_page 500 =200 /x.html;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: a service's `error_pages` cannot change the status

location / { root /srv; }
error_page /x.html;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: a service's `error_pages` cannot change the status

location / { root /srv; }
error_page;
=> service.nginx-80: pool = "no-servers"
=> route: files = { root = "/srv" }
=> lost 3: the page is missing

location / { proxy_pass http://a; }
error_page 500 =200 /x.html;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` cannot change the status

location / { fastcgi_pass 127.0.0.1:9000; }
error_page 500 /x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/x.html" }]
=> route: status = 503
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: Weir supports only HTTP servers

location = /x.html { proxy_pass http://a; }
error_page 500 /y.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/y.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/x.html"; pool = "a"
=> route: status = 404

location = /other { internal;
root /srv; }
location = /50x.html { internal;
root /pages; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/pages/50x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/50x.html"; status = 404
=> route: path = "/other"; status = 404
=> route: status = 404
=> lost 3: no imported route with `files` or a fixed response

location = /50x.html { auth_jwt x;
root /pages; }
error_page 500 /50x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/pages/50x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/50x.html"; status = 403
=> route: status = 404
=> unguarded 2: weir.toml has no equivalent
=> lost 3: no imported route with `files` or a fixed response
"#;

#[test]
fn page_of_a_path_is_in_the_location_that_nginx_selects() {
    assert_rows(PAGE_OF_A_PATH_IS_IN_THE_LOCATION_THAT_NGINX_SELECTS);
}

const PAGE_OF_A_PATH_IS_IN_THE_LOCATION_THAT_NGINX_SELECTS: &str = r#"
location /a { root /srv; } location ^~ /e/ { proxy_pass http://a; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/e/*"; pool = "a"
=> route: path = "/a*"; files = { root = "/srv" }
=> route: status = 404
=> lost 3: the error page is proxied to a server

location /e { root /srv; } location /e/ { proxy_pass http://a; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/e/*"; pool = "a"
=> route: path = "/e*"; files = { root = "/srv" }
=> route: status = 404
=> lost 3: the error page is proxied to a server

location /e/ { root /srv; } location /e { proxy_pass http://a; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/e/x.html"
.. }]; normalize_path = { encoded_slash = "decode" }
=> route: path = "/e/*"; files = { root = "/srv" }
=> route: path = "/e*"; pool = "a"
=> route: status = 404

location / { proxy_pass http://a; } location ~ \.html$ { root /srv; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/e/x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "*.html"; files = { root = "/srv" }

location / { proxy_pass http://a; } location ~ \.gif$ { root /srv; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "*.gif"; files = { root = "/srv" }
=> lost 3: the error page is proxied to a server

location / { proxy_pass http://a; } location ~* HTML$ { root /srv; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/e/x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "(?i)HTML$"; files = { root = "/srv" }

location / { proxy_pass http://a; } location ~ HTML$ { root /srv; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path_regex = "HTML$"; files = { root = "/srv" }
=> lost 3: the error page is proxied to a server

location / { proxy_pass http://a; } location ~ ( { return 204; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", file = "/usr/share/nginx/html/e/x.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> lost 2: invalid regular expression: unclosed group

location / { proxy_pass http://a; } location @x { return 204; }
error_page 500 /e/x.html;
=> service.nginx-80: pool = "a"
=> lost 2: no `try_files` or `error_page` that Weir supports
=> lost 3: the error page is proxied to a server
"#;

#[test]
fn page_for_404_is_unneeded_if_every_path_is_proxied() {
    assert_rows(PAGE_FOR_404_IS_UNNEEDED_IF_EVERY_PATH_IS_PROXIED);
}

const PAGE_FOR_404_IS_UNNEEDED_IF_EVERY_PATH_IS_PROXIED: &str = r#"
location / { proxy_pass http://a; }
error_page 404 /x.html;
=> service.nginx-80: pool = "a"
=> remark 3: every location proxies its requests, so nginx itse

location / { proxy_pass http://a; } location /x { internal; }
error_page 404 /x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; status = 404
=> remark 3: every location proxies its requests, so nginx itse

location / { proxy_pass http://a; } location /y { return 200; }
error_page 404 /x.html;
=> service.nginx-80: pool = "a"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/y*"; status = 200
=> lost 3: the error page is proxied to a server

location / { proxy_pass http://a; if ($http_a = b) { return 404; } }
error_page 404 /x.html;
=> service.nginx-80: pool = "a"
=> route: header = ["a: b"]; status = 404
=> lost 3: the error page is proxied to a server

location / { proxy_pass http://a; if ($http_a = b) { return 403; } }
error_page 404 /x.html;
=> service.nginx-80: pool = "a"
=> route: header = ["a: b"]; status = 403
=> remark 3: every location proxies its requests, so nginx itse

location /x { proxy_pass http://a; }
error_page 404 /x.html;
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; pool = "a"
=> route: status = 404
=> lost 3: the error page is proxied to a server

location / { proxy_pass http://a; }
error_page 404 500 /x.html;
=> service.nginx-80: pool = "a"
=> lost 3: the error page is proxied to a server

location / { fastcgi_pass 127.0.0.1:9000; }
error_page 404 /x.html;
=> service.nginx-80: pool = "no-servers"
=> route: status = 503
=> lost 2: it has no target that Weir supports; Weir responds
=> lost 2: Weir supports only HTTP servers
=> remark 3: every location proxies its requests, so nginx itse
"#;

#[test]
fn error_page_with_a_url_is_a_redirect() {
    assert_rows(ERROR_PAGE_WITH_A_URL_IS_A_REDIRECT);
}

const ERROR_PAGE_WITH_A_URL_IS_A_REDIRECT: &str = r#"
location / { proxy_pass http://a; }
error_page 500 502 http://b.example/x;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500,502", redirect = "http://b.example/x" }]

location / { proxy_pass http://a; }
error_page 500 =303 https://b.example/x;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", redirect = "https://b.example/x", redirect_status
.. = 303 }]

location / { proxy_pass http://a; }
error_page 500 =302 https://b.example/x;
=> service.nginx-80: pool = "a"; error_pages = [{ status = "500", redirect = "https://b.example/x" }]

location / { proxy_pass http://a; }
error_page 500 =301 https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page 500 =x https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page 500 https://$host/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page 500 "https://b.example/{x}";
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page 497 https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page x https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page =303 https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f

location / { proxy_pass http://a; }
error_page https://b.example/x;
=> service.nginx-80: pool = "a"
=> lost 3: a service's `error_pages` accepts only files and f
"#;

#[test]
fn fields_of_404_responses_are_those_of_the_page() {
    assert_rows(FIELDS_OF_404_RESPONSES_ARE_THOSE_OF_THE_PAGE);
}

const FIELDS_OF_404_RESPONSES_ARE_THOSE_OF_THE_PAGE: &str = r#"
root /srv; error_page 404 /404.html;
location / { add_header X-A b always; add_header X-C d always; }
location = /404.html { add_header X-A b always; add_header X-E f always; add_header X-G h; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-A: b", "X-E: f", { header = "X-G:
.. h", status = SUCCESSES }]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b", { header = "X-C: d", status =
.. "200-403,405-599" }, { header = "X-E: f", status = "404" }]

root /srv; error_page 404 /404.html;
location / { add_header X-A b always; }
location = /404.html { add_header X-A c always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-A: c"]
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = "200-403,405-599" }]
=> lost 3: 404 responses have the X-A field of the requested

root /srv; error_page 404 =200 /404.html;
location / { add_header X-A b always; }
location = /404.html { add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-E: f"]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]
=> lost 2: a service's `error_pages` cannot change the status

root /srv; error_page 404 @x;
location / { add_header X-A b always; }
location = /404.html { add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-E: f"]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]
=> lost 2: a service's `error_pages` accepts only files and f

root /srv; error_page 403 /404.html;
location / { add_header X-A b always; }
location = /404.html { add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "403", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-E: f"]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]

root /srv; error_page 404 /404.html;
location / { add_header X-A b always; }
location = /404.html { fastcgi_pass 127.0.0.1:9000; add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; status = 503; add_response_header = ["X-E: f"]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]
=> lost 4: it has no target that Weir supports; Weir responds
=> lost 4: Weir supports only HTTP servers

root /srv; error_page 404 /x/404.html;
location / { add_header X-A b always; }
location /x { add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/x/404.html" }];
.. normalize_path = { encoded_slash = "decode" }
=> route: path = "/x*"; files = { root = "/srv" }; add_response_header = ["X-E: f"]
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = "200-403,405-599" }, {
.. header = "X-E: f", status = "404" }]

root /srv; error_page 404 /404.html;
location / { add_header X-A b always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]

root /srv; error_page 404 /404.html;
location / { add_header X-A b always; }
location = /404.html { add_header X-E $geoip_country always; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = "200-403,405-599" }]
=> lost 4: the value contains an unsupported variable or a na

root /srv; error_page 404 /404.html;
location / { add_header X-A b; }
location = /404.html { add_header X-E f; }
=> service.nginx-80: pool = "no-servers"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path
.. = { encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-E: f", status =
.. SUCCESSES }]
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = SUCCESSES }]

error_page 404 /404.html;
location / { proxy_pass http://a; add_header X-A b always; }
location = /404.html { root /srv; add_header X-E f always; }
=> service.nginx-80: pool = "a"; error_pages = [{ status = "404", file = "/srv/404.html" }]; normalize_path = {
.. encoded_slash = "decode" }
=> route: path = "/404.html"; files = { root = "/srv" }; add_response_header = ["X-E: f"]
=> route: pool = "a"; add_response_header = ["X-A: b"]

root /srv;
location / { add_header X-A b always; error_page 404 /404.html; }
location /404 { proxy_pass http://a; add_header X-E f always; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/404*"; pool = "a"; add_response_header = ["X-E: f"]
=> route: method = ["GET", "HEAD"]; files = { root = "/srv", pool = "a" }; add_response_header = ["X-A: b"]; rewrite
.. = "/404.html?"; response_status = 404
=> route: files = { root = "/srv" }; add_response_header = ["X-A: b"]
=> lost 3: responses with files and those with the `error_pag
=> lost 4: responses with files and those with the `error_pag
"#;

#[test]
fn fields_of_the_fallback_page_are_those_of_its_location() {
    assert_rows(FIELDS_OF_THE_FALLBACK_PAGE_ARE_THOSE_OF_ITS_LOCATION);
}

const FIELDS_OF_THE_FALLBACK_PAGE_ARE_THOSE_OF_ITS_LOCATION: &str = r#"
root /srv;
location / { try_files $uri /index.html; }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header = "X-A: b",
.. status = SUCCESSES, file = "/index.html" }]

root /srv;
location / { }
location = /index.html { add_header X-A b; expires 1h; access_log off; error_log /x; log_not_found off;
internal; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; status = 404
=> route: files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status = SUCCESSES, file =
.. "/index.html" }, { header = "Cache-Control: max-age=3600", status = SUCCESSES, file = "/index.html" }]
=> remark 4: imported as `Cache-Control`; Weir does not send `E
=> remark 4: the service has no access log
=> remark 4: Weir logs to standard error; under systemd, the jo

root /srv; index start.html;
location / { }
location = /start.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/start.html"; files = { root = "/srv", index = ["start.html"] }; add_response_header = [{ header =
.. "X-A: b", status = SUCCESSES }]
=> route: files = { root = "/srv", index = ["start.html"] }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES, file = "/start.html" }]

root /srv;
location /x { try_files $uri /index.html; }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: path = "/x*"; files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header
.. = "X-A: b", status = SUCCESSES, file = "/index.html" }]
=> route: files = { root = "/srv" }

root /srv;
location /x { }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: path = "/x*"; files = { root = "/srv" }
=> route: files = { root = "/srv" }

root /srv;
location / { try_files $uri /other.html; }
location = /index.html { add_header X-A b; }
location = /other.html { add_header X-C d; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: path = "/other.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-C: d", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/other.html"] }; add_response_header = [{ header = "X-C: d",
.. status = SUCCESSES, file = "/other.html" }]
=> lost 3: when /index.html is served for another path, the r

root /srv;
location / { try_files $uri /index.html; add_header X-C d; }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header = "X-C: d",
.. status = SUCCESSES }]
=> lost 3: when /index.html is served for another path, the r

root /srv;
location / { try_files $uri /index.html; add_header X-A b; }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header = "X-A: b",
.. status = SUCCESSES }]

root /srv;
location / { try_files $uri /index.html; }
location = /index.html { add_header X-A b; root /other; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/other" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}"] }
=> lost 3: nginx passes requests for missing files to the loc
=> lost 3: when /index.html is served for another path, the r

location / { alias /srv; try_files $uri /index.html; }
location = /index.html { root /srv; add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> lost 2: nginx passes requests for missing files to the loc
=> lost 2: when /index.html is served for another path, the r
=> lost 2: strip must begin with /
=> lost 2: it depends on a part of line 2 that is not importe

root /srv;
location / { try_files $uri /index.html; }
location /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html*"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }

root /srv; add_header X-A b;
location / { try_files $uri /index.html; }
location = /index.html { add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header = "X-A: b",
.. status = SUCCESSES }]

root /srv;
location = /index.html { try_files $uri /index.html; add_header X-A b; }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{
.. header = "X-A: b", status = SUCCESSES }]
=> route: files = { root = "/srv" }

root /srv;
location / { try_files $uri /index.html; add_header X-C d; location = /index.html { add_header X-A b; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "X-A: b", status =
.. SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header = "X-C: d",
.. status = SUCCESSES }]
=> lost 3: when /index.html is served for another path, the r

location / { root /srv; try_files $uri /index.html; location = /index.html { expires 5m; } }
=> service.nginx-80: pool = "no-servers"; normalize_path = { encoded_slash = "decode" }
=> route: path = "/index.html"; files = { root = "/srv" }; add_response_header = [{ header = "Cache-Control:
.. max-age=300", status = SUCCESSES }]
=> route: files = { root = "/srv", try = ["{path}", "/index.html"] }; add_response_header = [{ header =
.. "Cache-Control: max-age=300", status = SUCCESSES, file = "/index.html" }]
=> remark 2: imported as `Cache-Control`; Weir does not send `E
"#;
