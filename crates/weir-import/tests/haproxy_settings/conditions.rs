//! Tests `.if` and other lines that begin with a period.

use super::{Row, assert_changes};

const CONDITIONS_DETERMINE_WHICH_LINES_ARE_READ: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        ".if 1\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n balance source\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if\n balance source\n.endif",
        &[
            "3: not imported: it only determines which lines are read",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n balance source\n.else\n balance leastconn\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = "wlc""#,
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
            "7: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1\n balance source\n.else\n balance leastconn\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
            "6: not imported: haproxy skips it because of the condition on line 5",
            "7: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n balance source\n.elif 1\n balance leastconn\n.else\n balance first\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = "wlc""#,
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: the condition is treated as true",
            "7: not imported: it only determines which lines are read",
            "8: not imported: haproxy skips it because of the condition on line 7",
            "9: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1\n balance source\n.elif 1\n balance leastconn\n.else\n balance first\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
            "6: not imported: haproxy skips it because of the condition on line 5",
            "7: not imported: it only determines which lines are read",
            "8: not imported: haproxy skips it because of the condition on line 7",
            "9: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n balance source\n.elif 0\n balance leastconn\n.else\n balance first\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = "first""#,
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: the condition is treated as false",
            "6: not imported: haproxy skips it because of the condition on line 5",
            "7: not imported: it only determines which lines are read",
            "9: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n .if 1\n balance source\n .else\n balance first\n .endif\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: it only determines which lines are read",
            "5: not imported: haproxy skips it because of the condition on line 3",
            "6: not imported: it only determines which lines are read",
            "7: not imported: haproxy skips it because of the condition on line 3",
            "8: not imported: it only determines which lines are read",
            "9: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n .if foo\n .elif foo\n .endif\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: it only determines which lines are read",
            "5: not imported: it only determines which lines are read",
            "6: not imported: it only determines which lines are read",
            "7: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1\n .if 0\n balance source\n .else\n balance first\n .endif\n.else\n balance \
        leastconn\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = "first""#,
            "3: the condition is treated as true",
            "4: the condition is treated as false",
            "5: not imported: haproxy skips it because of the condition on line 4",
            "6: not imported: it only determines which lines are read",
            "8: not imported: it only determines which lines are read",
            "9: not imported: it only determines which lines are read",
            "10: not imported: haproxy skips it because of the condition on line 9",
            "11: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".else",
        &["3 LOST: not imported: haproxy requires .if before this line"],
    ),
    (
        ".elif 1",
        &["3 LOST: not imported: haproxy requires .if before this line"],
    ),
    (
        ".endif",
        &["3 LOST: not imported: haproxy requires .if before this line"],
    ),
    (
        ".if 1",
        &[
            "3: the condition is treated as true",
            "3 LOST: haproxy requires .endif after this line",
        ],
    ),
    (
        ".if 0\n balance source",
        &[
            "3: the condition is treated as false",
            "3 LOST: haproxy requires .endif after this line",
            "4: not imported: haproxy skips it because of the condition on line 3",
        ],
    ),
    (
        ".alert x",
        &["3 LOST: not imported: this line prevents haproxy from starting"],
    ),
    (
        ".if 0\n.alert x\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: it only prints a message",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (".warning x", &["3: not imported: it only prints a message"]),
    (".notice x", &["3: not imported: it only prints a message"]),
    (".diag x", &["3: not imported: it only prints a message"]),
    (
        ".foo x",
        &["3 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        ".if foo\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3 LOST: the condition cannot be evaluated; the lines after it are imported",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if defined(NONE)\n balance source\n.endif",
        &[
            "3: the condition is treated as false (NONE is not set here)",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if defined(PORT)\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true (PORT is set)",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if \"streq(${NONE},)\"\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3 LOST: the environment variable NONE is not set here and is treated as empty; set \
            it and import again",
            "3: the condition is treated as true (streq is true)",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if \"streq(${PORT},8080)\"\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true (streq is true)",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if \"strneq(${PORT},8080)\"\n balance source\n.endif",
        &[
            "3: the condition is treated as false (strneq is false)",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if \"strstr(${PORT},80)\"\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true (strstr is true)",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if \"strstr(${PORT},9)\"\n balance source\n.endif",
        &[
            "3: the condition is treated as false (strstr is false)",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if openssl_version_atleast(3.0)\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true (openssl_version_atleast is true)",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if openssl_version_before(3.0)\n balance source\n.endif",
        &[
            "3: the condition is treated as false (openssl_version_before is false)",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if version_before(2.0)\n balance source\n.endif",
        &[
            "3: the condition is treated as false (version_before is false)",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0 || 0\n balance source\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1 && 0\n balance source\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1 && 1\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0 || 1 && 1\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if !0 && !(1 && 0)\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3: the condition is treated as true",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if streq(a)\n balance source\n.endif",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "3 LOST: the condition cannot be evaluated; the lines after it are imported",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 0\n balance \"open\n.endif",
        &[
            "3: the condition is treated as false",
            "4: not imported: haproxy skips it because of the condition on line 3",
            "5: not imported: it only determines which lines are read",
        ],
    ),
    (
        ".if 1\n balance \"open\n.endif",
        &[
            "3: the condition is treated as true",
            "4 OPEN: not imported: haproxy rejects an unterminated quote or escape",
            "5: not imported: it only determines which lines are read",
        ],
    ),
];

#[test]
fn conditions_determine_which_lines_are_read() {
    assert_changes(
        "backend b\n server a 10.0.0.5:80\n{}\n",
        CONDITIONS_DETERMINE_WHICH_LINES_ARE_READ,
    );
}
