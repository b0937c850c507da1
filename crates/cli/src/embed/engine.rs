//! Windows of lines through a model, on several threads, in order and with bounded memory.
//!
//! Two windows are under way at once: while threads compute the batches of one, the next is read and tokenized, so no thread is
//! idle at the end of a window. One thread, which calls [`run`], reads, cuts into batches and takes the rows of whole windows in
//! order; the others take jobs from one queue, first in first out. Which thread takes which job is open, and rows don't depend on it.
//!
//! What batches are made of follows from the lines of a window and the options alone, so a run that goes on at the start of a
//! window makes the same batches as one that came there without a break.

use super::input::Line;
use crate::{
    output::{Failure, Outcome},
    threads::start_threads,
};
use raddle::nn::text::{SentenceEncoder, Tokens, TooLong};
use raddle_sync::fault;
use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Mutex, PoisonError, mpsc},
};

/// Windows that are read ahead of the one whose rows are wanted next, and that one.
const WINDOWS_MAX: usize = 2;
/// Texts that a thread tokenizes at once. (A guess: a millisecond or two.)
const TOKENIZED_TOGETHER: usize = 128;

/// How texts go through a model.
pub struct Engine<'a> {
    pub model: &'a SentenceEncoder,
    /// Before each text.
    pub prompt: &'a str,
    /// What is done with a text of too many tokens.
    pub too_long: TooLong,
    pub threads: u16,
    /// The most tokens of a batch of more than one text.
    pub batch_tokens: usize,
    /// Each text is computed alone.
    pub alone: bool,
}

/// Lines, and what came of them.
pub struct Window {
    pub lines: Vec<Line>,
    /// One for each line; NaN where there was no text.
    pub rows: Vec<f32>,
    pub tokens: u64,
    pub padding_tokens: u64,
    number: u64,
    tokenized: Vec<(usize, Tokens)>,
    /// Jobs that are queued or running.
    jobs: usize,
}

enum Task {
    /// Lines with their places in the window.
    Tokenize(Vec<(usize, String)>),
    Embed(Vec<(usize, Tokens)>),
}

enum Answer {
    /// Of lines with their places, and why others have none.
    Tokens(Vec<(usize, Tokens)>, Vec<(usize, String)>),
    /// Places in the window, and their rows.
    Rows(Vec<usize>, Vec<f32>),
}

/// With the number of its window.
type Job = (u64, Task);
type Done = (u64, Result<Outcome<Answer>, Box<dyn Any + Send>>);

impl Engine<'_> {
    /// Takes windows from `next` until there is none, and gives them to `finish` in the same order. `note` hears of texts that
    /// have their rows. A row that isn't finite is none: its line is one that can't be read.
    ///
    /// Errors: the first of anyone's; then nothing more is asked for, read or given.
    pub fn run(
        &self,
        next: impl FnMut() -> Outcome<Option<Vec<Line>>>,
        finish: impl FnMut(Window) -> Outcome,
        note: impl Fn(u64),
    ) -> Outcome {
        self.run_with(|task| self.work(task), next, finish, note)
    }

    fn run_with(
        &self,
        work: impl Fn(Task) -> Outcome<Answer> + Sync,
        mut next: impl FnMut() -> Outcome<Option<Vec<Line>>>,
        mut finish: impl FnMut(Window) -> Outcome,
        note: impl Fn(u64),
    ) -> Outcome {
        let (give, take) = mpsc::channel::<Job>();
        let (answer, answers) = mpsc::channel::<Done>();
        let take = Mutex::new(take);
        std::thread::scope(|scope| {
            // Dropped at the end, which ends the threads: without answers to give, those with jobs left, too.
            let (give, answers) = (give, answers);
            start_threads(scope, "embed", self.threads.into(), |_| {
                let (take, work, answer) = (&take, &work, answer.clone());
                move || {
                    let job = || take.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    while let Ok((window, task)) = job() {
                        let done = catch_unwind(AssertUnwindSafe(|| work(task)));
                        // Nobody listens any more: another job has failed.
                        if answer.send((window, done)).is_err() {
                            break;
                        }
                    }
                }
            })?;
            drop(answer);
            let queue = |job| give.send(job).map_err(|_| Failure::Other("embed: no thread is left".into()));
            let mut windows: VecDeque<Window> = VecDeque::new();
            let (mut count, mut ended) = (0, false);
            loop {
                while !ended && windows.len() < WINDOWS_MAX {
                    let Some(lines) = next()? else {
                        ended = true;
                        break;
                    };
                    windows.push_back(self.begin(count, lines, &queue)?);
                    count += 1;
                }
                let Some(first) = windows.front() else { return Ok(()) };
                if first.jobs == 0 {
                    finish(windows.pop_front().expect("it is there"))?;
                    continue;
                }
                let Ok((number, done)) = answers.recv() else {
                    return Err(Failure::Other("embed: no thread is left".into()));
                };
                let done = done.unwrap_or_else(|panic| resume_unwind(panic))?;
                let window = windows.iter_mut().find(|window| window.number == number);
                let window = window.expect("a window stays until all its jobs are done");
                window.jobs -= 1;
                match done {
                    Answer::Tokens(tokens, refused) => {
                        window.tokenized.extend(tokens);
                        refused.into_iter().for_each(|(place, why)| window.lines[place] = Err(why));
                        if window.jobs == 0 {
                            self.cut(window, &queue)?;
                        }
                    }
                    Answer::Rows(places, rows) => {
                        let (width, mut count) = (self.model.width(), 0);
                        for (&place, row) in places.iter().zip(rows.chunks(width)) {
                            match row.iter().find(|element| !element.is_finite()) {
                                None => {
                                    window.rows[place * width..][..width].copy_from_slice(row);
                                    count += 1;
                                }
                                Some(found) => {
                                    window.lines[place] =
                                        Err(format!("its vector has an element that is {found}"));
                                }
                            }
                        }
                        note(count);
                    }
                }
            }
        })
    }

    /// A window whose lines are being tokenized.
    fn begin(&self, number: u64, mut lines: Vec<Line>, queue: &impl Fn(Job) -> Outcome) -> Outcome<Window> {
        if fault!(bad_lines_have_no_rows) {
            lines.retain(Line::is_ok);
        }
        let texts = lines.iter().enumerate().filter_map(|(place, line)| Some((place, line.as_ref().ok()?)));
        let texts: Vec<(usize, String)> = texts.map(|(place, text)| (place, text.clone())).collect();
        let rows = vec![f32::NAN; lines.len() * self.model.width()];
        let (tokens, padding_tokens, tokenized) = (0, 0, Vec::new());
        let mut window = Window { lines, rows, tokens, padding_tokens, number, tokenized, jobs: 0 };
        for texts in texts.chunks(TOKENIZED_TOGETHER) {
            queue((number, Task::Tokenize(texts.to_vec())))?;
            window.jobs += 1;
        }
        Ok(window)
    }

    /// Makes batches of what was tokenized, the longest first: so no thread is left with a long one at the end.
    fn cut(&self, window: &mut Window, queue: &impl Fn(Job) -> Outcome) -> Outcome {
        // As threads were done is no order.
        window.tokenized.sort_by_key(|(place, _)| *place);
        let (places, tokens): (Vec<usize>, Vec<Tokens>) = window.tokenized.drain(..).unzip();
        for tokens in &tokens {
            let count = tokens.ids.len();
            window.tokens += count as u64;
            window.padding_tokens += (self.model.padded_token_count(count) - count) as u64;
        }
        // No text has no tokens, so at most one makes each text a batch.
        let batches = self.model.batches(&tokens, if self.alone { 1 } else { self.batch_tokens });
        let mut tokens: Vec<Option<Tokens>> = tokens.into_iter().map(Some).collect();
        for batch in batches.into_iter().rev() {
            let texts = batch.iter().map(|&text| (places[text], tokens[text].take().expect("each once")));
            queue((window.number, Task::Embed(texts.collect())))?;
            window.jobs += 1;
        }
        Ok(())
    }

    fn work(&self, task: Task) -> Outcome<Answer> {
        let failed = |error: &dyn std::fmt::Display| Failure::Other(format!("embed: {error}"));
        match task {
            Task::Tokenize(texts) => {
                // One after the other: a text that is refused is a line that can't be read, and not the end of the others.
                let tokenizer = self.model.tokenizer();
                let tokenize = |text: &String| {
                    let tokens = tokenizer.tokenize_behind(self.prompt, &[text], self.too_long);
                    match tokens.map_err(|error| error.to_string())?.into_iter().next() {
                        Some(tokens) if !tokens.ids.is_empty() => Ok(tokens),
                        _ => Err("it has no tokens".to_string()),
                    }
                };
                let (mut tokenized, mut refused) = (Vec::with_capacity(texts.len()), Vec::new());
                for (place, text) in texts {
                    match tokenize(&text) {
                        Ok(tokens) => tokenized.push((place, tokens)),
                        Err(why) => refused.push((place, why)),
                    }
                }
                Ok(Answer::Tokens(tokenized, refused))
            }
            Task::Embed(texts) => {
                let (places, tokens): (Vec<usize>, Vec<Tokens>) = texts.into_iter().unzip();
                let rows = self.model.encode_tokens(&tokens).map_err(|error| failed(&error))?;
                Ok(Answer::Rows(places, rows.to_vec::<f32>().map_err(|error| failed(&error))?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle::nn::text::{BertConfig, write_random_model};
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        time::Duration,
    };

    /// Tells when it is dropped.
    struct Left(mpsc::Sender<()>);

    impl Drop for Left {
        fn drop(&mut self) {
            _ = self.0.send(());
        }
    }

    /// On a full disk nobody wants to wait for all that was to come.
    #[test]
    fn a_failure_leaves_what_is_queued() {
        let folder = std::env::temp_dir().join(format!("raddle-{}-engine", std::process::id()));
        let device = raddle::Device::new("cpu").unwrap();
        write_random_model(&folder, &BertConfig::tiny(5), &["a"], 16, 3, &device).unwrap();
        let model = SentenceEncoder::load(&folder, &device).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let engine = Engine {
            model: &model,
            prompt: "",
            too_long: TooLong::Truncate,
            threads: 1,
            batch_tokens: 64,
            alone: false,
        };
        let mut windows = vec![vec![Ok("a".to_string()); 8 * TOKENIZED_TOGETHER]];
        let (leave, left) = mpsc::channel();
        let (leave, left, count) = (Mutex::new(Some(leave)), Mutex::new(left), AtomicUsize::new(0));
        let work = |_| {
            match count.fetch_add(1, SeqCst) {
                0 => {}
                // An answer that nobody takes is dropped with all others, when nobody listens any more.
                1 => resume_unwind(Box::new(Left(leave.lock().unwrap().take().unwrap()))),
                _ => _ = left.lock().unwrap().recv_timeout(Duration::from_secs(60)),
            }
            Err(Failure::Other("it fails".into()))
        };
        let ended = engine.run_with(work, || Ok(windows.pop()), |_| Ok(()), |_| {});
        assert!(matches!(ended, Err(Failure::Other(text)) if text == "it fails"));
        let count = count.into_inner();
        assert!(count <= 3, "{count} of 8 jobs were begun");
    }
}
