//! Tests the texts of differences in path rewrites, the maps of access logs, and rates.

use std::sync::Arc;

use weir_model::*;

fn desired(rewrite: Option<PathRewrite>, log_maps: Vec<Arc<ValueMap>>) -> Desired {
    let mut route = Route::new(RouteAction::Pool("p".to_owned()));
    route.edits.path = rewrite;
    let mut proxy = Proxy::new("www", ProxyProtocol::Http, "p");
    proxy.routes = vec![route];
    proxy.log_maps = log_maps;
    Desired {
        proxies: vec![proxy],
        ..Desired::default()
    }
}

fn rewrite(regex: Option<&str>) -> Option<PathRewrite> {
    Some(PathRewrite {
        regex: regex.map(|text| TextRegex::new(text).unwrap()),
        to: Template::literal("/x"),
    })
}

#[test]
fn path_rewrites_and_log_maps_are_compared() {
    let map = || vec![Arc::new(ValueMap::empty())];
    for (after, expected) in [
        (
            desired(rewrite(None), Vec::new()),
            "route 1.rewrite none -> /x",
        ),
        (
            desired(rewrite(Some("^/a")), Vec::new()),
            "route 1.rewrite none -> /x if ^/a matches",
        ),
        (desired(None, map()), "access_log.maps changed"),
    ] {
        let changes = diff(&desired(None, Vec::new()), &after);
        let [change] = changes.as_slice() else {
            panic!("{changes:?}");
        };
        assert!(change.to_string().contains(expected), "{change}");
    }
}

#[test]
fn rate_is_shown_per_second_if_it_is_a_whole_number() {
    let with_rate = |per_minute| {
        let mut desired = desired(None, Vec::new());
        desired.proxies[0].limits.per_minute = per_minute;
        desired
    };
    for (old, new, expected) in [
        (0, 300, "limits.rate 0 -> 5"),
        (60, 90, "limits.rate 1 -> 90/m"),
        (61, 59, "limits.rate 61/m -> 59/m"),
    ] {
        let changes = diff(&with_rate(old), &with_rate(new));
        let [change] = changes.as_slice() else {
            panic!("{changes:?}");
        };
        assert!(change.to_string().contains(expected), "{change}");
    }
}
