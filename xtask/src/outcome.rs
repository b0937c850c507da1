//! How commands end, and what their options are.

/// Why a command ended without success.
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// A check failed or couldn't run: exit code 1. The point stands in the first line.
    Check(String),
}

/// How commands end.
pub type Outcome = Result<(), Failure>;

/// A failed check with this text.
pub fn failed<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Check(text.into()))
}

/// The options of a command: `--name value`, `--name`, and what comes after `--`.
pub struct Options {
    words: Vec<String>,
    /// Everything after `--`, for the program that is started.
    pub rest: Vec<String>,
}

impl Options {
    /// Of the words after the command's name.
    pub fn new(mut words: Vec<String>) -> Options {
        let rest = match words.iter().position(|word| word == "--") {
            Some(at) => words.drain(at..).skip(1).collect(),
            None => Vec::new(),
        };
        Options { words, rest }
    }

    /// Is the flag there?
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| word == name);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// The text after an option.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let Some(at) = self.words.iter().position(|word| word == name) else { return Ok(None) };
        if at + 1 == self.words.len() {
            return Err(Failure::Usage(format!("{name}: expected a value, found the end of the line")));
        }
        self.words.remove(at);
        Ok(Some(self.words.remove(at)))
    }

    /// The number after an option, or a default.
    pub fn number(&mut self, name: &str, default: u64) -> Result<u64, Failure> {
        match self.text(name)? {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Failure::Usage(format!("{name}: expected a whole number, found {text:?}"))),
        }
    }

    /// What is left: words that are no options.
    pub fn words(&mut self) -> Result<Vec<String>, Failure> {
        match self.words.iter().find(|word| word.starts_with('-')) {
            None => Ok(std::mem::take(&mut self.words)),
            Some(word) => Err(Failure::Usage(format!("expected an option, found {word:?}"))),
        }
    }

    /// Nothing may be left.
    pub fn finish(&self) -> Outcome {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(Failure::Usage(format!("expected an option, found {word:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        Options::new(line.split_whitespace().map(String::from).collect())
    }

    #[test]
    fn options_are_taken_one_by_one() {
        let mut options = options("--minutes 3 --large -- --steps 4");
        assert!(options.flag("--large"));
        assert!(!options.flag("--large"));
        assert!(matches!(options.number("--minutes", 1), Ok(3)));
        assert!(matches!(options.number("--minutes", 1), Ok(1)));
        assert!(options.finish().is_ok());
        assert_eq!(options.rest, ["--steps", "4"]);
    }

    #[test]
    fn wrong_use_says_what_was_found() {
        let text = |outcome: Outcome| match outcome {
            Err(Failure::Usage(text)) => text,
            _ => panic!("expected wrong use"),
        };
        assert_eq!(
            text(options("--minutes x").number("--minutes", 1).map(drop)),
            "--minutes: expected a whole number, found \"x\""
        );
        assert_eq!(
            text(options("--minutes").text("--minutes").map(drop)),
            "--minutes: expected a value, found the end of the line"
        );
        assert_eq!(text(options("--what").finish()), "expected an option, found \"--what\"");
    }
}
