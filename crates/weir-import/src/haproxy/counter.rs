//! Recognizes criteria that compare counters of stick tables or the load of a proxy.
//!
//! Routes have no counters, so a limit is lost if a rule rejects clients by such a criterion. The imported rule must
//! neither admit clients that other parts of its condition reject, nor reject every client.

/// Names of a client's counters, without the prefix `sc_`, `sc0_`, `sc1_`, `sc2_` or `src_`.
const CLIENT_COUNTERS: &[&str] = &[
    "bytes_in_rate",
    "bytes_out_rate",
    "clr_gpc",
    "clr_gpc0",
    "clr_gpc1",
    "conn_cnt",
    "conn_cur",
    "conn_rate",
    "get_gpc",
    "get_gpc0",
    "get_gpc1",
    "get_gpt",
    "get_gpt0",
    "glitch_cnt",
    "glitch_rate",
    "gpc_rate",
    "gpc0_rate",
    "gpc1_rate",
    "http_err_cnt",
    "http_err_rate",
    "http_fail_cnt",
    "http_fail_rate",
    "http_req_cnt",
    "http_req_rate",
    "inc_gpc",
    "inc_gpc0",
    "inc_gpc1",
    "kbytes_in",
    "kbytes_out",
    "sess_cnt",
    "sess_rate",
    "tracked",
    "trackers",
    "updt_conn_cnt",
];

/// Fetch methods for the load of a frontend, a backend or a server.
const LOAD_FETCHES: &[&str] = &[
    "act_conn",
    "avg_queue",
    "be_conn",
    "be_sess_rate",
    "fe_conn",
    "fe_req_rate",
    "fe_sess_rate",
    "queue",
    "srv_conn",
    "srv_queue",
    "srv_sess_rate",
    "table_cnt",
];

/// Converters that convert zero to zero or to a negative number.
const CONVERTERS: &[&str] = &["and", "bool", "div", "mod", "mul", "sub"];

/// Returns whether a criterion about a counter matches if the counter is zero. Returns `None` if the criterion is not
/// about a counter, or not only about a counter.
pub(super) fn matches_zero(criterion: &[String]) -> Option<bool> {
    let (sample, words) = criterion.split_first()?;
    if !is_counter(sample) {
        return None;
    }
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(flag) = words.next_if(|word| word.starts_with('-')) {
        match flag {
            "-m" => match words.next()? {
                "int" | "bool" => {}
                "found" => return Some(false),
                _ => return None,
            },
            "--" => break,
            _ => return None,
        }
    }
    let values: Vec<&str> = words.collect();
    match values.as_slice() {
        [] => Some(false),
        [operator @ ("eq" | "ge" | "gt" | "le" | "lt"), values @ ..] => {
            let numbers: Result<Vec<i64>, _> = values.iter().map(|it| it.parse()).collect();
            let is_match = |number: &i64| match *operator {
                "eq" => *number == 0,
                "ge" => *number <= 0,
                "gt" => *number < 0,
                "le" => *number >= 0,
                _ => *number > 0,
            };
            let numbers = numbers.ok().filter(|it| !it.is_empty())?;
            Some(numbers.iter().any(is_match))
        }
        values => {
            let matches: Option<Vec<bool>> = values.iter().map(|it| contains_zero(it)).collect();
            Some(matches?.contains(&true))
        }
    }
}

/// Returns whether a value such as `0`, `5:`, `:5` or `1:5` contains zero.
fn contains_zero(value: &str) -> Option<bool> {
    if matches!(value, "true" | "false") {
        return Some(value == "false");
    }
    let (low, high) = value.split_once(':').unwrap_or((value, value));
    let bound = |text: &str| match text {
        "" => Some(0),
        number => number.parse::<i64>().ok(),
    };
    Some(bound(low)? <= 0 && bound(high)? >= 0)
}

/// Returns whether a sample is a counter: a fetch method such as `sc_http_req_rate(0)`, or a key that is looked up in a
/// table, as in `src,table_conn_rate(t)`.
fn is_counter(sample: &str) -> bool {
    let mut parts = split_outside_parentheses(sample).into_iter();
    let mut is_counter = parts.next().is_some_and(is_counter_fetch);
    for converter in parts {
        let is_lookup = converter == "in_table"
            || converter.starts_with("table_") && !converter.contains("expire");
        is_counter = is_lookup || is_counter && CONVERTERS.contains(&converter);
    }
    is_counter
}

fn is_counter_fetch(name: &str) -> bool {
    let mut prefixes = ["sc_", "sc0_", "sc1_", "sc2_", "src_"].iter();
    let counter = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    counter.is_some_and(|it| CLIENT_COUNTERS.contains(&it)) || LOAD_FETCHES.contains(&name)
}

/// Returns the names of the fetch method and the converters of a sample, without their arguments.
fn split_outside_parentheses(sample: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (offset, c) in sample.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&sample[start..offset]);
                start = offset + 1;
            }
            _ => {}
        }
    }
    parts.push(&sample[start..]);
    let name_len = |part: &'_ str| part.find('(').unwrap_or(part.len());
    parts
        .into_iter()
        .map(|part| &part[..name_len(part)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_evaluated_for_zero() {
        for (criterion, expected) in [
            ("sc_http_req_rate(0) gt 20", Some(false)),
            ("sc0_http_req_rate lt 20", Some(true)),
            ("src_conn_cur(t) ge 0", Some(true)),
            ("src_conn_cur(t) ge 1", Some(false)),
            ("src_conn_cur(t) eq 0", Some(true)),
            ("src_conn_cur(t) eq 1 0", Some(true)),
            ("src_conn_cur(t) eq 1", Some(false)),
            ("src_conn_cur(t) le 0", Some(true)),
            ("src_conn_cur(t) le 1", Some(true)),
            ("src_conn_cur(t) lt 0", Some(false)),
            ("src_conn_cur(t) gt 0", Some(false)),
            ("src_conn_cur(t) gt -1", Some(true)),
            ("src_conn_cur(t) :5", Some(true)),
            ("src_conn_cur(t) 1:5", Some(false)),
            ("src_get_gpc0 -m int 1:", Some(false)),
            ("sc_get_gpt0(0) 0 5", Some(true)),
            ("src_http_err_rate -m found", Some(false)),
            ("src,table_conn_rate(t) gt 5", Some(false)),
            ("req.hdr(x),in_table(t)", Some(false)),
            ("src,in_table(t) -m bool false", Some(true)),
            ("sc_http_req_rate(0),sub(txn.max) gt 0", Some(false)),
            ("be_conn(app) gt 100", Some(false)),
            ("sc_http_req_rate(0,t) gt 5", Some(false)),
            ("sc_http_req_rate(0,t),sub(1) lt 5", Some(true)),
            ("src_conn_cur(t) -- 0", Some(true)),
            ("src_conn_cur(t) -m int -- 1", Some(false)),
            ("src_conn_cur(t) -m bool true", Some(false)),
            ("src_conn_cur(t)", Some(false)),
            ("src_conn_cur(t) 0:0", Some(true)),
            ("src_conn_cur(t) -5:-1", None),
            ("src_conn_cur(t) -- -5:-1", Some(false)),
            ("src_conn_cur(t) -- -1:1", Some(true)),
            ("src_conn_cur(t) 1:", Some(false)),
            ("src_conn_cur(t) :x", None),
            ("src_conn_cur(t) x", None),
            ("src_conn_cur(t) -m str 0", None),
            ("src_conn_cur(t) -m", None),
            ("src_conn_cur(t) -i 0", None),
            ("src,table_expire(t) gt 5", None),
            ("src,lower gt 5", None),
            ("be_conn(app),div(2) ge 0", Some(true)),
            ("table_cnt(t) lt 0", Some(false)),
            ("conn_cur gt 5", None),
            ("src_be_conn gt 5", None),
            ("sc_get_gpc0(0),not", None),
            ("src 10.0.0.0/8", None),
            ("src_is_local", None),
            ("src_port lt 1024", None),
            ("nbsrv(app) lt 1", None),
            ("rand(100) lt 10", None),
            ("sc_http_req_rate(0) gt x", None),
            ("sc_http_req_rate(0) gt", None),
        ] {
            let words: Vec<String> = criterion.split(' ').map(str::to_owned).collect();
            assert_eq!(matches_zero(&words), expected, "{criterion}");
        }
    }
}
