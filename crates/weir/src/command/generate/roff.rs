//! Translates the manual's cards into the man page weir.toml(5).
//!
//! Sections, keys, lists, examples and emphasis are translated. Tables are omitted, because the only table is the list
//! of sections.

/// File name of the page.
pub(super) const FILE: &str = "weir.toml.5";

/// Returns the page in man(7) format.
pub(super) fn configuration() -> String {
    let mut out = format!(
        ".TH weir.toml 5 \"\" \"weir {}\"\n.SH NAME\nweir.toml \\- configuration of the load balancer Weir\n\
         .SH SYNOPSIS\n.B /etc/weir/weir.toml\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    for (_, page) in weir_config::cards() {
        translate(&mut out, &page);
    }
    out.push_str(".SH SEE ALSO\n.BR weir (1),\n.BR weir-check (1),\n.BR weir-reload (1)\n");
    out
}

/// Translates a Markdown page and appends it. Omits the title of the first page.
fn translate(out: &mut String, page: &str) {
    let mut is_example = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_example = !is_example;
            out.push_str(if is_example { ".PP\n.EX\n" } else { ".EE\n" });
        } else if is_example {
            push_line(out, &escape(line));
        } else if let Some(title) = line.strip_prefix("## ") {
            out.push_str(&format!(".SS {}\n", escape(title.trim_matches('`'))));
        } else if let Some(title) = line.strip_prefix("# ") {
            if title != "Configuration" {
                out.push_str(&format!(".SH {}\n", escape(title.trim_matches('`'))));
            }
        } else if let Some(item) = line.strip_prefix("- ") {
            out.push_str(".IP \\(bu 2\n");
            push_line(out, &format_inline(item));
        } else if line.is_empty() {
            out.push_str(".PP\n");
        } else if !line.starts_with('|') {
            push_line(out, &format_inline(line));
        }
    }
}

/// Appends a line of text, escaped so that man(7) does not interpret it as a request.
fn push_line(out: &mut String, line: &str) {
    if line.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    out.push_str(line);
    out.push('\n');
}

/// Escapes text that a reader may copy, so that man(7) interprets no character and hyphens remain ASCII.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Returns a line with code in bold, and with links replaced by their text.
fn format_inline(line: &str) -> String {
    let mut out = String::new();
    for (number, part) in without_links(line).split('`').enumerate() {
        if number % 2 == 1 {
            out.push_str("\\fB");
            out.push_str(&escape(part));
            out.push_str("\\fR");
        } else {
            out.push_str(&part.replace('\\', "\\e"));
        }
    }
    out
}

/// Replaces `[text](target)` with `text`.
fn without_links(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(middle) = text.find("](") {
        let (Some(begin), Some(length)) = (text[..middle].rfind('['), text[middle..].find(')'))
        else {
            break;
        };
        text.replace_range(middle..=middle + length, "");
        text.remove(begin);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_translated_to_man_requests() {
        let mut out = String::new();
        let page = "# `[a-b]`\n\n.x of [`y-z`](y.md#p), a-b \\\n\n```toml\n.key = '\\'\n```\n\n## `key`\n\n\
             - one `[c]`\n| t |\n";
        translate(&mut out, page);
        let expected = ".SH [a\\-b]\n.PP\n\\&.x of \\fBy\\-z\\fR, a-b \\e\n.PP\n.PP\n.EX\n\\&.key = '\\e'\n.EE\n.PP\n\
             .SS key\n.PP\n.IP \\(bu 2\none \\fB[c]\\fR\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn brackets_without_target_are_kept() {
        assert_eq!(
            without_links("a [check.NAME] (b), [c](d) [e]"),
            "a [check.NAME] (b), c [e]"
        );
    }
}
