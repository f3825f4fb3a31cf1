//! A file as the rules see it: as it is, and as code alone, without comments and the
//! content of strings, so that a word in a sentence is no violation.

pub struct Source {
    /// Relative to the project, with `/`.
    pub path: String,
    pub text: String,
    /// The text with comments and the content of strings blanked; empty if it is not Rust.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { code_of(text) } else { String::new() };
        Source { path: path.to_owned(), text: text.to_owned(), code }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_lua(&self) -> bool {
        self.path.ends_with(".lua")
    }

    pub fn is_c(&self) -> bool {
        self.path.ends_with(".c")
    }

    pub fn is_under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
}

/// Blanks comments and the content of strings; every line stays where it is.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_name = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let (length, is_code) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (comment_length(rest), false),
            '"' => (string_length(rest), false),
            'r' | 'b' | 'c' if !after_name && raw_string_length(rest).is_some() => {
                (raw_string_length(rest).expect("it is one"), false)
            }
            '\'' => (char_length(rest), false),
            _ => (first.len_utf8(), true),
        };
        let (taken, remaining) = rest.split_at(length);
        if is_code {
            code.push_str(taken);
        } else {
            code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = remaining;
    }
    code
}

/// Block comments nest.
fn comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of `r"..."`, `r#"..."#` and so on, if the text begins with one.
fn raw_string_length(text: &str) -> Option<usize> {
    let after_prefix = text.strip_prefix(['b', 'c']).unwrap_or(text).strip_prefix('r')?;
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    let content = after_prefix[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let content_length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + content_length)
}

/// The length of a character literal; of a lifetime only its apostrophe.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    let is_escaped = text.starts_with("'\\");
    let last = if is_escaped { chars.skip(2).find(|(_, c)| *c == '\'') } else { chars.nth(1) };
    last.filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1)
}

#[test]
fn comments_and_strings_are_blank_and_code_is_not() {
    for (text, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c\n */ */ d", "a          \n       d"),
        (r#"a("b // \" c") d"#, r#"a(           ) d"#),
        ("a(r#\"b \" c\"#) d", "a(          ) d"),
        (r"a('\'', '\\', '/') 'b: d", r"a(    ,     ,    )  b: d"),
        ("bar\"x\"", "bar   "),
    ] {
        assert_eq!(code_of(text), code, "{text}");
    }
}
