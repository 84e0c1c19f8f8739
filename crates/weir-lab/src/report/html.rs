//! Writes the HTML report: a single file without scripts, fonts or external links.
//!
//! The report supports light mode, dark mode and printing.

use std::fmt::Write as _;

use super::{BASE, DIRECTOR, Panel, Report, Row, bars, chart, headline, latency, share, table};

/// The style sheet. Lines differ in color and dash pattern. The colors are distinguishable with every type of color
/// blindness (tested below).
const STYLE: &str = "
:root { --ink: #1c1e21; --dim: #5f6670; --paper: #ffffff; --line: #dde1e6; --director: #d55e00; --receive: #0033cc;
  --s1: #009e73; --s2: #c060c0; --client: #111827; --bar: #009e73; --base: #8b93a0; --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --dim: #9aa2ad; --paper: #16181b; --line: #34383e;
  --director: #fb923c; --receive: #2563eb; --s1: #10b981; --s2: #f0abfc; --client: #f3f4f6; --bar: #10b981; --base: \
  #7d8590;
  --bad: #fca5a5 } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1360px; margin: \
2em auto;
  padding: 0 1em; overflow-wrap: break-word }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.1em; margin: 0 }
p, li { color: var(--dim); margin: .3em 0 }
.headline { color: var(--ink); font-size: 1.2em; font-weight: 600; margin: .8em 0 }
.busy { color: var(--ink); border-left: .3em solid var(--director); padding: .3em .8em; margin: 1em 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; margin: 1.2em 0 }
th, td { padding: .3em .9em; border-bottom: 1px solid var(--line); text-align: right; font-variant-numeric: \
tabular-nums }
th:first-child, td:first-child { text-align: left; white-space: nowrap } .bad { color: var(--bad); font-weight: 600 }
.bars { display: grid; grid-template-columns: fit-content(40%) 1fr max-content; gap: .3em .7em; align-items: center; \
margin: 1.2em 0;
  max-width: 60em; font-variant-numeric: tabular-nums } .bars h2, .bars h3 { grid-column: 1 / -1 } \
.bars div { display: contents }
.track, .bar { display: block; height: 1em; border-radius: 2px } .track { background: var(--line) } .bar { background: \
var(--bar) }
.base { background: var(--base) }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1.6em 2em }
figure { margin: 0; break-inside: avoid } figcaption { margin-bottom: .2em }
svg { width: 100%; height: auto; font-size: 11px } svg text { fill: var(--dim) }
polyline, .key { fill: none; stroke-width: 1.5; stroke-linejoin: round; vector-effect: non-scaling-stroke }
.director { stroke: var(--director); stroke-width: 2.6 } .receive { stroke: var(--receive); stroke-dasharray: 5 3 }
.s1, .s3 { stroke: var(--s1) } .s2, .s4 { stroke: var(--s2) } .s3, .s4 { stroke-dasharray: 9 2 }
.client { stroke: var(--client); stroke-dasharray: 1.5 2.5 } .grid { stroke: var(--line) }
.limit { stroke: var(--dim); stroke-dasharray: 2 3 }
.legend { display: flex; flex-wrap: wrap; gap: .3em 1.4em; color: var(--dim); margin: 1em 0 }
.legend svg { width: 26px; height: 8px; vertical-align: middle; margin-right: .4em }
@media (max-width: 600px) { body { margin: 1em auto } th, td { padding: .3em .5em } svg { font-size: 17px } }
";

/// Escapes text for elements and quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Returns a complete file with this body below its title.
pub(crate) fn document(name: &str, body: &str) -> String {
    page(name, &format!("<h1>{}</h1>\n{body}", escape(name)))
}

/// Returns a complete file with this content.
pub(super) fn page(title: &str, content: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>weir lab: {}</title>\n\
         <style>{STYLE}</style>\n\
         </head>\n<body>\n{content}</body>\n</html>\n",
        escape(title)
    )
}

/// Returns the complete file of a report.
pub(super) fn render(report: &Report) -> String {
    page(&report.experiment, &body(report))
}

/// Returns the content of a report's file.
pub(super) fn body(report: &Report) -> String {
    let name = escape(&report.experiment);
    let mut page = format!("<h1>{name}</h1>\n<p>{}</p>\n", escape(&report.summary));
    write_head(&mut page, report);
    if report.is_timed() {
        write_timed_rows(&mut page, report);
    } else {
        write_rows(&mut page, report);
    }
    write_failures(&mut page, report);
    if report.has_shares() {
        write_shares(&mut page, report);
    } else if report.is_timed() {
        write_distributions(&mut page, report);
    } else if !report.panels.is_empty() {
        write_panels(&mut page, report);
    }
    page.push_str("<h2>Conditions</h2>\n<ul>\n");
    for note in &report.notes {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<li>{}</li>", escape(note));
    }
    page.push_str("</ul>\n");
    page
}

/// Writes the headline, the warning about a busy machine, and the bar charts.
fn write_head(page: &mut String, report: &Report) {
    if let Some(headline) = headline::summarize(report) {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<p class=\"headline\">{}</p>", escape(&headline));
    }
    if let Some(busy) = &report.busy {
        let _ = writeln!(page, "<p class=\"busy\">{}</p>", escape(busy));
    }
    bars::render(page, report);
}

fn write_timed_rows(page: &mut String, report: &Report) {
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>method</th>");
    for title in latency::titles(report) {
        let _ = write!(page, "<th>{}</th>", escape(&title));
    }
    page.push_str("</tr>\n");
    for row in &report.rows {
        let class = if row.failed > 0 { " class=\"bad\"" } else { "" };
        let _ = write!(page, "<tr><td>{}</td>", escape(&row.name));
        for (column, cell) in latency::cells(row).iter().enumerate() {
            let class = if column == 1 { class } else { "" };
            let _ = write!(page, "<td{class}>{}</td>", escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// Writes a chart for each method, with all its runs.
fn write_distributions(page: &mut String, report: &Report) {
    let mut methods: Vec<&str> = Vec::new();
    let mut workloads: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !methods.contains(&row.method()) {
            methods.push(row.method());
        }
        workloads.extend(
            row.workload()
                .filter(|workload| !workloads.contains(workload)),
        );
    }
    let keys = workloads
        .iter()
        .map(|workload| (latency::class(workload).to_owned(), escape(workload)));
    write_legend(page, keys.collect());
    page.push_str("<div class=\"panels\">\n");
    for method in methods {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.method() == method)
            .collect();
        let failed: u64 = rows.iter().map(|row| row.failed).sum();
        let _ = writeln!(
            page,
            "<figure><figcaption><h2>{}</h2><p>{failed} failed</p></figcaption>\n{}</figure>",
            escape(method),
            latency::chart(method, &rows)
        );
    }
    page.push_str("</div>\n");
}

/// Writes, for each method, a chart of the slow server's share over time.
fn write_shares(page: &mut String, report: &Report) {
    page.push_str("<div class=\"panels\">\n");
    let mut methods: Vec<&str> = Vec::new();
    for row in &report.rows {
        if methods.contains(&row.method()) {
            continue;
        }
        methods.push(row.method());
        let rows = report
            .rows
            .iter()
            .filter(|other| other.method() == row.method());
        let _ = writeln!(
            page,
            "<figure><figcaption><h2>{}</h2><p>share of the first server</p></figcaption>\n{}</figure>",
            escape(row.method()),
            share::chart(row.method(), &rows.collect::<Vec<_>>())
        );
    }
    page.push_str("</div>\n");
}

pub(super) fn write_legend(page: &mut String, keys: Vec<(String, String)>) {
    page.push_str("<div class=\"legend\">\n");
    for (class, label) in keys {
        let _ = writeln!(
            page,
            "<span><svg viewBox=\"0 0 26 8\"><line class=\"key {class}\" x1=\"0\" x2=\"26\" y1=\"4\" \
             y2=\"4\"/></svg>{label}</span>"
        );
    }
    page.push_str("</div>\n");
}

fn write_rows(page: &mut String, report: &Report) {
    let traffic = !report.panels.is_empty();
    let _ = write!(
        page,
        "<div class=\"scroll\"><table>\n\
         <tr><th>method</th><th>requests/s</th><th>KB/s</th><th>failed</th><th>seconds</th>\
         <th>× {BASE}</th>"
    );
    if traffic {
        page.push_str("<th>director sends, Mbit/s</th><th>receives</th>");
    }
    page.push_str("</tr>\n");
    for row in &report.rows {
        let class = if row.failed > 0 { " class=\"bad\"" } else { "" };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{:.2}</td><td>{:.2}</td><td{class}>{}</td><td>{:.3}</td><td>{}</td>",
            escape(&row.name),
            row.requests_per_second,
            row.kbytes_per_second,
            row.failed,
            row.seconds,
            table::ratio(row)
        );
        if let Some((sends, receives)) = report
            .panel(row)
            .and_then(|panel| panel.series.mean(DIRECTOR))
        {
            let _ = write!(page, "<td>{sends:.2}</td><td>{receives:.2}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn write_failures(page: &mut String, report: &Report) {
    for failure in &report.failures {
        let (method, error) = (escape(&failure.method), escape(&failure.error));
        let _ = writeln!(
            page,
            "<p><span class=\"bad\">{method} was not measured:</span> {error}</p>"
        );
    }
}

fn write_panels(page: &mut String, report: &Report) {
    let max = report.panels.iter().map(|panel| servers(panel).count());
    let max = max.max().unwrap_or(0);
    let server = |number: usize| match number {
        1 => ("s1".into(), "server 1 sends".into()),
        _ => (format!("s{number}"), format!("server {number}")),
    };
    let mut keys: Vec<(String, String)> = vec![
        ("director".into(), "director sends".into()),
        ("receive".into(), "director receives".into()),
    ];
    keys.extend((1..=max).map(server));
    keys.push(("client".into(), "client sends".into()));
    write_legend(page, keys);
    page.push_str("<div class=\"panels\">\n");
    for panel in &report.panels {
        let _ = writeln!(
            page,
            "<figure><figcaption><h2>{}</h2><p>{}</p></figcaption>\n{}</figure>",
            escape(&panel.name),
            limit_sentence(panel),
            chart::traffic(panel)
        );
    }
    page.push_str("</div>\n");
}

/// Returns the mean transmit rate of each server in a panel, in Mbit/s.
fn servers(panel: &Panel) -> impl Iterator<Item = f64> {
    let hosts = panel.series.hosts.iter();
    let servers = hosts.filter(|host| host.host.starts_with("server"));
    servers.map(|host| panel.series.mean(&host.host).unwrap_or_default().0)
}

/// Returns a sentence about what limits a method.
fn limit_sentence(panel: &Panel) -> String {
    let (sends, receives) = panel.series.mean(DIRECTOR).unwrap_or_default();
    let busiest = servers(panel).fold(0.0, f64::max);
    let link = panel.link;
    if headline::is_saturated(panel) {
        return format!(
            "The director's uplink is the bottleneck: it sends {sends:.1} of {link:.1} Mbit/s and receives \
             {receives:.1}, while the busiest server sends {busiest:.1}."
        );
    }
    let subject = match servers(panel).count() {
        1 => "The server sends".to_owned(),
        count => format!("The {count} servers together send"),
    };
    let total: f64 = servers(panel).sum();
    format!(
        "{subject} {total:.1} Mbit/s over links of {link:.1}; the director sends {sends:.1} and receives {receives:.1}."
    )
}

/// Checks that tags are nested and closed as in XML.
#[cfg(test)]
pub(super) fn assert_well_formed(page: &str) {
    let mut open = Vec::new();
    let body = page.strip_prefix("<!DOCTYPE html>").expect("no doctype");
    for tag in body.split('<').skip(1) {
        let (tag, text) = tag
            .split_once('>')
            .unwrap_or_else(|| panic!("tag without >: <{tag}"));
        assert!(!text.contains('>'), "stray > after <{tag}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closing </{name}>");
        } else if !tag.ends_with('/') {
            open.extend(tag.split_whitespace().next());
        }
    }
    assert!(open.is_empty(), "unclosed tags: {open:?}");
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn pages_are_well_formed_and_self_contained() {
        let mut report = example::report();
        for _ in 0..2 {
            let page = render(&report);
            assert_well_formed(&page);
            for external in [
                "http://", "https://", "src=", "href=", "<script", "@import", "url(",
            ] {
                assert!(!page.contains(external), "{external}");
            }
            report.panels.clear();
        }
    }

    #[test]
    fn runs_of_a_method_share_a_distribution_chart() {
        let page = render(&example::timed_report());
        assert_well_formed(&page);
        assert_eq!(page.matches("<figure>").count(), 1);
        assert_eq!(page.matches("<polyline").count(), 4);
    }

    #[test]
    fn outcome_precedes_charts_and_table() {
        let mut report = example::report();
        report.busy = Some("busy <much>".into());
        let mut head = String::new();
        super::write_head(&mut head, &report);
        insta::assert_snapshot!(head);
        let page = render(&report);
        assert_well_formed(&page);
        let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(position("class=\"headline\"") < position("class=\"bars\""));
        assert!(position("class=\"bars\"") < position("<table>"));
    }

    #[test]
    fn page_fits_narrow_screens() {
        for report in [example::report(), example::timed_report()] {
            let page = render(&report);
            assert!(page.contains("name=\"viewport\" content=\"width=device-width"));
            assert_eq!(
                page.matches("<div class=\"scroll\"><table>").count(),
                page.matches("<table>").count()
            );
            // Charts use the available width; only legend keys have a fixed width.
            assert!(!page.contains("<svg width") && !page.contains("min-width"));
            let fixed = STYLE.matches(" width: ").count() - STYLE.matches(" width: 100%").count();
            assert_eq!(fixed, 1, "only the keys of a legend");
        }
    }

    /// Returns the values of the variables in `STYLE`, for light and dark mode.
    fn colors() -> [Vec<(&'static str, [f64; 3])>; 2] {
        let variables = |text: &'static str| {
            let parts = text.split("--").skip(1);
            parts
                .filter_map(|part| {
                    let (name, value) = part.split_once(": #")?;
                    let channel =
                        |start: usize| u8::from_str_radix(&value[start..start + 2], 16).ok();
                    let linear = |byte: u8| {
                        let part = f64::from(byte) / 255.0;
                        match part <= 0.04045 {
                            true => part / 12.92,
                            false => ((part + 0.055) / 1.055).powf(2.4),
                        }
                    };
                    Some((
                        name,
                        [
                            linear(channel(0)?),
                            linear(channel(2)?),
                            linear(channel(4)?),
                        ],
                    ))
                })
                .collect()
        };
        let (light, rest) = STYLE.split_once("@media").expect("no dark mode");
        let (dark, _) = rest.split_once("body {").expect("no rule for `body`");
        [variables(light), variables(dark)]
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Converts a color to CIELAB, where a distance of about 2 is just noticeable.
    fn lab([red, green, blue]: [f64; 3]) -> [f64; 3] {
        let nonlinear = |t: f64| match t > 0.008856 {
            true => t.cbrt(),
            false => 7.787 * t + 16.0 / 116.0,
        };
        let x = nonlinear((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505);
        let y = nonlinear(luminance([red, green, blue]));
        let z = nonlinear((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Matrices for normal vision, protanopia, deuteranopia and tritanopia (Machado, Oliveira, Fernandes 2009, severity
    /// 1).
    const COLOR_VISION: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    #[test]
    fn line_colors_differ_for_color_blind_readers_on_light_and_dark() {
        const LINES: [&str; 5] = ["director", "receive", "s1", "s2", "client"];
        for colors in colors() {
            let color = |name: &str| {
                let found = colors.iter().find(|(other, _)| *other == name);
                found.unwrap_or_else(|| panic!("no {name}")).1
            };
            let paper = luminance(color("paper"));
            for name in LINES
                .into_iter()
                .chain(["bar", "base", "ink", "dim", "bad"])
            {
                let line = luminance(color(name));
                let contrast = (line.max(paper) + 0.05) / (line.min(paper) + 0.05);
                assert!(contrast >= 3.0, "{name}: contrast {contrast:.2}");
            }
            for (index, first) in LINES.iter().enumerate() {
                for second in &LINES[index + 1..] {
                    for matrix in COLOR_VISION {
                        let simulated = |color: [f64; 3]| {
                            lab(matrix.map(|row| {
                                let sum: f64 = row.iter().zip(color).map(|(a, b)| a * b).sum();
                                sum.clamp(0.0, 1.0)
                            }))
                        };
                        let (a, b) = (simulated(color(first)), simulated(color(second)));
                        let distance: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
                        assert!(
                            distance.sqrt() >= 25.0,
                            "{first} and {second}: {:.1}",
                            distance.sqrt()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn external_text_is_escaped() {
        let page = render(&example::report());
        assert!(page.contains("files &lt;big&gt; &amp; links small"));
        assert!(page.contains("&lt;no such thing&gt;"));
    }

    #[test]
    fn limit_sentence_names_the_bottleneck_link() {
        let report = example::report();
        assert!(
            limit_sentence(&report.panels[0])
                .starts_with("The director's uplink is the bottleneck: it sends 10.2 of 10.2")
        );
        assert!(
            limit_sentence(&report.panels[1])
                .starts_with("The 2 servers together send 20.4 Mbit/s")
        );
    }

    #[test]
    fn every_method_has_a_panel_with_all_lines() {
        let page = render(&example::report());
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("director receives</title>").count(), 2);
        assert_eq!(page.matches("server2 sends</title>").count(), 2);
    }
}
