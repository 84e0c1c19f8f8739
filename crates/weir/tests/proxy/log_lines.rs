//! Everything that the daemon logs for a proxy service, from start to exit, is plain text.

use std::fs;

use super::keeper::{kill_daemon, until};
use super::log_line::first_with_debug_output;
use super::{Client, GET, Origin, Proxy, configuration};

#[test]
fn log_contains_no_debug_output() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address()], "");
    let list = proxy.directory.join("members");
    fs::write(&list, format!("{}\n", one.address())).expect("write file");
    let text = configuration(proxy.listen, "http", &[two.address()], "");
    let key = format!("[pool.p]\nservers_file = \"{}\"\n", list.display());
    proxy.reload(&text.replace("[pool.p]\n", &key));
    let server = format!("p/{}", two.address());
    for change in [&["drain"][..], &["ready"], &["maint"], &["weight", "3"]] {
        let arguments = [&["server", server.as_str()][..], change].concat();
        let (done, output) = proxy.weir(&arguments);
        assert!(done, "{output}");
    }
    fs::write(&list, "nonsense").expect("write file");
    until("the bad list", || {
        proxy.log().contains("the last good list is kept")
    });
    let bad = proxy.directory.join("bad.toml");
    fs::write(&bad, "[pool.p]\nnonsense = 1\n").expect("write file");
    assert!(
        !proxy
            .weir(&["reload", "-c", bad.to_str().expect("not UTF-8")])
            .0
    );
    kill_daemon(&proxy);
    until("the death", || proxy.log().contains("the daemon died"));
    let (done, output) = proxy.upgrade();
    assert!(done, "{output}");
    Client::connect(proxy.listen).fetch(GET);
    assert!(proxy.terminate().success());
    assert_eq!(first_with_debug_output(&proxy.log()), None);
}
