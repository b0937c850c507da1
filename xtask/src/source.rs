//! Rust text, taken apart just far enough for [`crate::tidy`]: what is code, what is comment, what is test.

/// One line of a file.
#[derive(Default, Debug, PartialEq)]
pub struct Line {
    /// The code, with the content of strings and all comments left out.
    pub code: String,
    /// The text of comments.
    pub comment: String,
    /// Does it belong to an item under `#[cfg(test)]` (or any `cfg` that names `test`)?
    pub test: bool,
}

enum State {
    Code,
    /// Nested so deep.
    Comment(u32),
    Text,
    /// Ends with a quote and so many hashes.
    Raw(usize),
}

/// Takes a file apart.
pub fn lines(text: &str) -> Vec<Line> {
    let mut state = State::Code;
    let mut lines: Vec<Line> = text.lines().map(|line| split(line, &mut state)).collect();
    mark_tests(&mut lines);
    lines
}

fn split(text: &str, state: &mut State) -> Line {
    let characters: Vec<char> = text.chars().collect();
    let at = |index: usize| characters.get(index).copied().unwrap_or('\n');
    let mut line = Line::default();
    let mut index = 0;
    while index < characters.len() {
        let here = characters[index];
        match state {
            State::Comment(depth) => {
                if here == '*' && at(index + 1) == '/' {
                    *depth -= 1;
                    index += 1;
                    if *depth == 0 {
                        *state = State::Code;
                    }
                } else if here == '/' && at(index + 1) == '*' {
                    *depth += 1;
                    index += 1;
                } else {
                    line.comment.push(here);
                }
            }
            State::Text => match here {
                '\\' => index += 1,
                '"' => {
                    line.code.push('"');
                    *state = State::Code;
                }
                _ => {}
            },
            State::Raw(hashes) => {
                if here == '"' && (1..=*hashes).all(|hash| at(index + hash) == '#') {
                    index += *hashes;
                    line.code.push('"');
                    *state = State::Code;
                }
            }
            State::Code => match here {
                '/' if at(index + 1) == '/' => {
                    line.comment.extend(&characters[index + 2..]);
                    break;
                }
                '/' if at(index + 1) == '*' => {
                    *state = State::Comment(1);
                    index += 1;
                }
                '"' => {
                    line.code.push('"');
                    *state = State::Text;
                }
                'r' if matches!(at(index + 1), '"' | '#') && !is_word(line.code.chars().next_back()) => {
                    let hashes = (index + 1..).take_while(|&i| at(i) == '#').count();
                    if at(index + 1 + hashes) == '"' {
                        index += 1 + hashes;
                        line.code.push('"');
                        *state = State::Raw(hashes);
                    } else {
                        line.code.push(here); // r#name
                    }
                }
                // A character, as against a lifetime.
                '\'' if at(index + 1) == '\\' => {
                    index += 2;
                    while index + 1 < characters.len() && at(index + 1) != '\'' {
                        index += 1;
                    }
                    index += 1;
                    line.code.push_str("' '");
                }
                '\'' if at(index + 2) == '\'' => {
                    index += 2;
                    line.code.push_str("' '");
                }
                _ => line.code.push(here),
            },
        }
        index += 1;
    }
    line
}

/// Could the character be inside a name?
pub fn is_word(character: Option<char>) -> bool {
    character.is_some_and(|character| character.is_alphanumeric() || character == '_')
}

/// Where a word stands in code, as a word of its own.
pub fn word_at(code: &str, word: &str) -> Option<usize> {
    code.match_indices(word).map(|(at, _)| at).find(|&at| {
        !is_word(code[..at].chars().next_back()) && !is_word(code[at + word.len()..].chars().next())
    })
}

/// Marks every item that stands under a `cfg` naming `test`: up to the brace that closes it, or its semicolon.
fn mark_tests(lines: &mut [Line]) {
    let mut index = 0;
    while index < lines.len() {
        let code = lines[index].code.trim_start();
        let names_test =
            code.starts_with("#[cfg(") && word_at(code, "test").is_some() && !code.contains("not(test");
        if !names_test {
            index += 1;
            continue;
        }
        let mut depth = 0_i32;
        let mut opened = false;
        while index < lines.len() {
            let line = &mut lines[index];
            line.test = true;
            index += 1;
            let after = line.code.rsplit_once(")]").filter(|_| line.code.trim_start().starts_with("#["));
            let code = after.map_or(line.code.as_str(), |(_, code)| code);
            for character in code.chars() {
                match character {
                    '{' => (depth, opened) = (depth + 1, true),
                    '}' => depth -= 1,
                    _ => {}
                }
            }
            if depth <= 0 && (opened || code.contains(';')) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_no_code() {
        let text = "let a = \"un// safe\"; // why\n/* one /* two */ still */ let b = '\"'; let c: &'static str = r#\"x\"y\"#;";
        let lines = lines(text);
        assert_eq!(lines[0].code, "let a = \"\"; ");
        assert_eq!(lines[0].comment, " why");
        assert_eq!(lines[1].code, " let b = ' '; let c: &'static str = \"\";");
        assert_eq!(lines[1].comment, " one  two  still ");
    }

    #[test]
    fn strings_go_on_over_lines() {
        let lines = lines("a(\"one \\\n two // no\") // yes\nb('\\'', 'x', '\\u{1F600}')");
        assert_eq!(lines[1].code, "\") ");
        assert_eq!(lines[1].comment, " yes");
        assert_eq!(lines[2].code, "b(' ', ' ', ' ')");
    }

    #[test]
    fn items_under_cfg_test_are_tests() {
        let text = "a\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nc\n#[cfg(all(test, not(loom)))]\nmod d;\ne\n#[cfg(not(test))]\nf";
        let tests: Vec<bool> = lines(text).iter().map(|line| line.test).collect();
        assert_eq!(tests, [false, true, true, true, true, false, true, true, false, false, false]);
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(word_at("is_unsafe(unsafe {", "unsafe"), Some(10));
        assert_eq!(word_at("unsafely", "unsafe"), None);
    }
}
