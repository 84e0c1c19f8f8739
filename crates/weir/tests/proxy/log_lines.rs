//! Tests that everything the daemon logs for a proxy service, from start to exit, is plain text.

use std::fs;

use super::keeper::{kill_daemon, wait_until};
use super::log_line::find_debug_output;
use super::{Client, GET, Origin, Proxy, configuration};

#[test]
fn log_contains_no_debug_output() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address()], "");
    let list_file = proxy.directory.join("members");
    fs::write(&list_file, format!("{}\n", one.address())).expect("write file");
    let text = configuration(proxy.listen, "http", &[two.address()], "");
    let key = format!("[pool.p]\nservers_file = \"{}\"\n", list_file.display());
    proxy.reload(&text.replace("[pool.p]\n", &key));
    let server = format!("p/{}", two.address());
    for change in [&["drain"][..], &["ready"], &["maint"], &["weight", "3"]] {
        let arguments = [&["server", server.as_str()][..], change].concat();
        let (succeeded, output) = proxy.weir(&arguments);
        assert!(succeeded, "{output}");
    }
    fs::write(&list_file, "nonsense").expect("write file");
    wait_until("the log reports the invalid list", || {
        proxy.log().contains("the last good list is kept")
    });
    let invalid_file = proxy.directory.join("bad.toml");
    fs::write(&invalid_file, "[pool.p]\nnonsense = 1\n").expect("write file");
    assert!(
        !proxy
            .weir(&["reload", "-c", invalid_file.to_str().expect("not UTF-8")])
            .0
    );
    kill_daemon(&proxy);
    wait_until("the log reports the exit of the daemon", || {
        proxy.log().contains("the daemon died")
    });
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    Client::connect(proxy.listen).fetch(GET);
    assert!(proxy.terminate().success());
    assert_eq!(find_debug_output(&proxy.log()), None);
}
