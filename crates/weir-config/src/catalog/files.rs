//! Defines a route's `files` key and the keys in its table form.

use super::*;

/// The keys in the table form of `files`.
pub(crate) static FILES: Section = Section {
    path: "route.files",
    page: "files",
    purpose: "Serves files from a directory in response to GET and HEAD requests. Ranges (one per request) and \
              conditional requests are supported. Symbolic links that point outside the directory are not followed, \
              and names that begin with `.` are not served, except `.well-known` at the top level.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npath = \
              \"/static/*\"\nfiles = { root = \"/srv/www\", strip = \"/static\" }\n",
    keys: &[
        Key::new(
            "root",
            Kind::DescribedText("an absolute directory path"),
            Required,
            "Directory that contains the files. The user that runs Weir must be able to read it. An unprivileged \
             daemon must be restarted after a reload adds a directory outside `/usr` and `/etc`.",
            "root = \"/srv/www\"",
        )
        .known_as(&["alias", "directory", "path"]),
        Key::new(
            "strip",
            Kind::DescribedText("a path prefix"),
            Absent("the whole path is used"),
            "Prefix to remove from the request path before the path is looked up below `root`.",
            "strip = \"/static\"",
        ),
        Key::new(
            "index",
            Kind::List(&Kind::DescribedText("a file name")),
            Default("[\"index.html\"]"),
            "Index files to send for a directory; the first one that exists is sent. With an empty list, no index file \
             is sent.",
            "index = [\"index.html\", \"index.htm\"]",
        ),
        Key::new(
            "try",
            Kind::List(&Kind::DescribedText("a path below `root`, in which `{path}` is the request path")),
            Default("[\"{path}\", \"{path}/\"]"),
            "Paths to try, in this order. An entry that ends with `/` is a directory: its `index` is sent, or, if the \
             request path does not end with `/`, a redirect to the path with `/` appended. If nothing is found, the \
             response has the route's `status`. Without `status`, it has 403 for a directory without an index, and 404 \
             otherwise.",
            "try = [\"{path}\", \"{path}.html\", \"/index.html\"]",
        )
        .known_as(&["try_files"]),
        Key::new(
            "pool",
            Kind::PoolName,
            Absent("the response has the route's `status`, or 404"),
            "Pool that receives requests for which no file is found, whatever their method. The route's keys for \
             forwarded requests apply to them.",
            "pool = \"images\"",
        )
        .known_as(&["fallback", "error_page"]),
    ],
};

const DIRECTORY: Kind = Kind::DescribedText("an absolute directory path");
const KIND: Kind = Kind::Either(&DIRECTORY, &Kind::Table(&FILES));

pub(super) const ROUTE_KEY: Key = Key::new(
    "files",
    KIND,
    Absent("no files are served"),
    "Directory whose files are sent to clients. If a file does not exist, the response has the route's `status` (400 \
     to 599), or 404.",
    "files = \"/srv/www\"",
)
.known_as(&["root", "alias", "try_files"]);
