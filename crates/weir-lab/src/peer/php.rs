//! Starts php-fpm with the three pages of the third field report: `small`, `rand` and `size`.

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::peer::START_LIMIT;
use crate::process::{Daemon, Launcher};
use crate::requirement::{self, PHP_FPM};
use crate::topology::BACKLOG;

/// Port of the FastCGI workers.
pub(crate) const PORT: u16 = 9000;

/// Name and text of each page. `small` runs `hostname`, as the author's page did; `rand` sleeps for 100 to 200 ms;
/// `size` returns `n` bytes.
const PAGES: [(&str, &str); 3] = [
    ("small.php", "<?php passthru('hostname');\n"),
    (
        "rand.php",
        "<?php usleep(random_int(100000, 200000)); echo \"done\\n\";\n",
    ),
    (
        "size.php",
        "<?php echo str_repeat('x', (int) $_GET['n']);\n",
    ),
];

/// Writes the pages into the document root.
pub(crate) fn write_pages(root: &Path) -> Result<()> {
    PAGES.iter().try_for_each(|(name, text)| {
        let path = root.join(name);
        std::fs::write(&path, text).map_err(LabError::file(path))
    })
}

/// Starts the FPM workers of a host: 10 initially, at most 100, as in the report.
pub(crate) fn start(launcher: &Launcher<'_>) -> Result<Daemon> {
    let directory = launcher.directory.display();
    let text = format!(
        "[global]\npid = {directory}/php-fpm.pid\nerror_log = /dev/stderr\nlog_level = error\ndaemonize = no\n\
         [www]\nuser = root\ngroup = root\nlisten = 0.0.0.0:{PORT}\nlisten.backlog = {BACKLOG}\npm = dynamic\n\
         pm.max_children = 100\npm.start_servers = 10\npm.min_spare_servers = 5\npm.max_spare_servers = 20\n"
    );
    let file = launcher.directory.join("php-fpm.conf");
    std::fs::write(&file, text).map_err(LabError::file(&file))?;
    let program = requirement::locate(PHP_FPM).unwrap_or_else(|| PathBuf::from(PHP_FPM.name));
    // -n: ignore the host's php.ini. -R: allow root, which is acceptable because the namespace and the directory belong
    // to the run.
    let arguments = [
        "-n".as_ref(),
        "-R".as_ref(),
        "-F".as_ref(),
        "-y".as_ref(),
        file.as_os_str(),
    ];
    let mut daemon = launcher.start("php-fpm", &program, &arguments)?;
    let pid = launcher.directory.join("php-fpm.pid");
    daemon.wait_ready("php-fpm to start", START_LIMIT, || Ok(pid.exists()))?;
    Ok(daemon)
}
