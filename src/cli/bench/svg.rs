//! The base scenario as a picture: one bar a system, as long as its share of raw XADD. Written
//! by hand; legible on light and on dark ground.

use super::{
    super::output::grouped,
    report::Found,
    results::{Quantity, median_of},
};

const WIDTH: u32 = 760;
const LABEL_WIDTH: u32 = 230;
const BAR_WIDTH: u32 = 330;
const ROW: u32 = 34;
const BAR: u32 = 20;
const TOP: u32 = 56;
const BOTTOM: u32 = 34;

/// Follows the reader's choice of light or dark.
const STYLE: &str = "text{font:14px system-ui,sans-serif;fill:#24292f}.note{font-size:12px;fill:#57606a}\
    .ours{fill:#1a7f37}.other{fill:#8c959f}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.ours{fill:#3fb950}.other{fill:#6e7681}}";

/// A system and what it reached.
struct Bar<'a> {
    name: &'a str,
    per_second: f64,
    /// Of the first system.
    ratio: f64,
    is_ours: bool,
}

pub fn draw(found: &Found) -> String {
    let bars = found.scenario.systems.iter().filter_map(|named| {
        let per_second = median_of(&found.repetitions, |r| r.value(&named.name, Quantity::EventsPerSecond))?;
        let is_ours = named.system.layout().is_some();
        Some(Bar {
            name: &named.name,
            per_second,
            ratio: found.ratio(named, Quantity::EventsPerSecond)?,
            is_ours,
        })
    });
    picture(&bars.collect::<Vec<_>>(), &found.scenario.systems[0].name)
}

fn picture(bars: &[Bar<'_>], reference: &str) -> String {
    let height = TOP + ROW * u32::try_from(bars.len()).expect("there are few") + BOTTOM;
    let longest = bars.iter().map(|bar| bar.ratio).fold(1.0, f64::max);
    let reference = escaped(reference);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Events per second, beside {reference}\">\n\
         <style>{STYLE}</style>\n\
         <text x=\"16\" y=\"28\" font-weight=\"600\">Events per second, 1,024 in flight, beside {reference}</text>\n"
    );
    for (row, bar) in (0..).zip(bars) {
        let y = TOP + ROW * row;
        let length = (f64::from(BAR_WIDTH) * bar.ratio / longest).max(1.0);
        let class = if bar.is_ours { "ours" } else { "other" };
        let middle = y + BAR / 2 + 5;
        svg.push_str(&format!(
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\n\
             <rect class=\"{class}\" x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{middle}\">{}\u{d7} <tspan class=\"note\">{}/s</tspan></text>\n",
            LABEL_WIDTH - 10,
            escaped(bar.name),
            f64::from(LABEL_WIDTH) + length + 8.0,
            if bar.ratio < 0.1 { format!("{:.3}", bar.ratio) } else { format!("{:.2}", bar.ratio) },
            grouped(bar.per_second as u64),
        ));
    }
    svg.push_str(&format!(
        "<text class=\"note\" x=\"16\" y=\"{}\">green: in order; grey: what it is compared with. Medians of ratios \
         inside one repetition.</text>\n</svg>\n",
        height - 12
    ));
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of elements as they open and close; `None` if they do not fit, or a text is bare.
    fn elements(svg: &str) -> Option<Vec<String>> {
        let (mut open, mut all, mut rest) = (Vec::new(), Vec::new(), svg);
        while let Some((text, after)) = rest.split_once('<') {
            if text.contains('>') || text.split('&').skip(1).any(|entity| !entity.contains(';')) {
                return None;
            }
            let (tag, after) = after.split_once('>')?;
            rest = after;
            if tag.matches('"').count() % 2 != 0 {
                return None;
            }
            if let Some(name) = tag.strip_prefix('/') {
                if open.pop()? != name {
                    return None;
                }
            } else {
                let name = tag.split([' ', '/']).next()?.to_owned();
                all.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        (open.is_empty() && rest.trim().is_empty()).then_some(all)
    }

    #[test]
    fn it_is_well_formed_with_a_bar_for_each_system() {
        let bar = |name, ratio, is_ours| Bar { name, per_second: 1e6 * ratio, ratio, is_ours };
        let bars =
            [bar("raw & \"plain\" <XADD>", 1.0, false), bar("ours", 0.5, true), bar("slow", 0.0001, false)];
        let svg = picture(&bars, "raw & \"plain\" <XADD>");
        let elements = elements(&svg).unwrap_or_else(|| panic!("not well formed: {svg}"));
        assert_eq!(elements.iter().filter(|name| *name == "rect").count(), 3);
        assert!(svg.contains("width=\"330.0\"") && svg.contains("width=\"165.0\""), "{svg}");
        assert!(svg.contains("width=\"1.0\""), "the slowest can still be seen");
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn what_is_not_well_formed_is_seen() {
        for broken in
            ["<svg><text></svg>", "<svg", "<svg>a > b</svg>", "<svg>a & b</svg>", "<svg a=\"b></svg>"]
        {
            assert_eq!(elements(broken), None, "{broken}");
        }
        assert_eq!(elements("<svg><rect/></svg>").unwrap(), ["svg", "rect"]);
    }
}
