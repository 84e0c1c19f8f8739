//! Tests the import of haproxy's backup servers with host names.

use weir_import::{EmptyEnvironment, haproxy};

/// HAProxy uses only the first backup server that is up, unless `option allbackups` is set.
#[test]
fn second_backup_server_is_a_loss_if_one_has_a_name() {
    let listen = |option: &str| {
        haproxy(
            "haproxy.cfg",
            &format!(
                "defaults\n mode http\nlisten web\n bind :80\n{option} server a 10.0.0.5:80\n server b 10.0.0.6:80 \
             backup\n server c app.example:80 backup\n"
            ),
            &EmptyEnvironment,
        )
    };
    let losses = listen("").losses;
    assert!(
        matches!(&losses[..], [loss] if loss.contains("server c")),
        "{losses:?}"
    );
    let losses = listen(" option allbackups\n").losses;
    assert!(losses.is_empty(), "{losses:?}");
}
