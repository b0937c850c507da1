//! The file as a viewer reads it: well-formed, every arrow with both ends, time going forward on each track.

use super::*;
use raddle_hal::trace::Thread;
use raddle_sync::faults::{Fault, plant};
use std::{collections::HashMap, result::Result};

/// An event, by its fields as texts.
type Fields = HashMap<String, String>;

/// Reads what [`render`] writes: a line an event, flat but for `args`, which is kept as text.
fn events(text: &str) -> Result<Vec<Fields>, String> {
    let (_, rest) = text.split_once("\"traceEvents\":[\n").ok_or("there is no list")?;
    let body = rest.strip_suffix("\n]}\n").ok_or("the list has no end")?;
    body.split(",\n").filter(|line| !line.is_empty()).map(fields).collect()
}

fn fields(line: &str) -> Result<Fields, String> {
    let bad = || format!("not an event: {line}");
    let mut rest = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).ok_or_else(bad)?;
    let mut fields = Fields::new();
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix('"').and_then(|rest| rest.split_once("\":")).ok_or_else(bad)?;
        let end = end_of_value(after).ok_or_else(bad)?;
        fields.insert(key.into(), after[..end].into());
        rest = after[end..].strip_prefix(',').unwrap_or(&after[end..]);
    }
    Ok(fields)
}

/// Where the first comma is that is in no text and no object.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (index, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => return Some(index),
            _ => {}
        }
    }
    (depth == 0 && !quoted && !escaped).then_some(text.len())
}

/// What is wrong with a file, if something is; how many slices, arrows and counts it has.
fn check(text: &str) -> Result<[usize; 3], String> {
    let ns = |text: &str| -> Result<u64, String> {
        let (whole, part) = text.split_once('.').filter(|(_, part)| part.len() == 3).ok_or(text)?;
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(number(whole)? * 1000 + number(part)?)
    };
    let mut last: HashMap<(String, String), u64> = HashMap::new();
    let mut ends: HashMap<String, u64> = HashMap::new();
    let mut slices: HashMap<(String, String), Vec<(u64, u64)>> = HashMap::new();
    let mut named = BTreeSet::new();
    let mut points = Vec::new();
    let mut counts = [0; 3];
    let get = |event: &Fields, key: &str| event.get(key).cloned().ok_or(format!("no {key} in {event:?}"));
    for event in &events(text)? {
        let phase = get(event, "ph")?;
        if phase == "\"M\"" {
            named.insert((get(event, "pid")?, event.get("tid").cloned()));
            continue;
        }
        let (track, at) = ((get(event, "pid")?, get(event, "tid")?), ns(&get(event, "ts")?)?);
        if at < last.insert(track.clone(), at).unwrap_or(0) {
            return Err(format!("time goes back at {event:?}"));
        }
        match &phase[..] {
            "\"X\"" => {
                counts[0] += 1;
                let end = at + ns(&get(event, "dur")?)?;
                slices.entry(track).or_default().push((at, end));
            }
            "\"s\"" => {
                ends.insert(get(event, "id")?, at);
                points.push((track, at));
            }
            "\"f\"" => {
                counts[1] += 1;
                let start =
                    ends.remove(&get(event, "id")?).ok_or(format!("an arrow from nowhere: {event:?}"))?;
                if at < start {
                    return Err(format!("an arrow goes back: {event:?}"));
                }
                points.push((track, at));
            }
            "\"C\"" => {
                counts[2] += 1;
                if !get(event, "args")?.starts_with("{\"bytes\":") {
                    return Err(format!("no number in {event:?}"));
                }
            }
            other => return Err(format!("no such phase: {other}")),
        }
    }
    if !ends.is_empty() {
        return Err(format!("arrows to nowhere: {ends:?}"));
    }
    for (track, at) in points {
        let hit = |(start, end): &(u64, u64)| (*start..*end).contains(&at);
        if !slices.get(&track).is_some_and(|slices| slices.iter().any(hit)) {
            return Err(format!("an arrow at {at} on {track:?} points at nothing"));
        }
    }
    match slices.keys().find(|(pid, tid)| !named.contains(&(pid.clone(), Some(tid.clone())))) {
        Some(track) => Err(format!("the track {track:?} has no name")),
        None => Ok(counts),
    }
}

fn span(what: What, start_ns: u64, end_ns: u64) -> Span {
    Span { what, name: "add", start_ns, end_ns }
}

/// Two streams, a wait of the second for the first, a wait for what there was no room for, memory, and another device.
fn trace() -> Trace {
    let (source, inner) = (Source::new(), Source::new());
    let work = |queue, sequence| Work { source, queue, sequence };
    let spans = vec![
        span(What::Allocated(source, 256), 5, 5),
        span(What::Submitted(work(0, 1), Box::default()), 10, 20),
        span(What::Ran(work(0, 1)), 21, 30),
        span(What::Ran(Work { source: inner, queue: 0, sequence: 1 }), 22, 29),
        span(What::Allocated(source, -256), 40, 40),
        span(What::Reserved(source, 4096), 1, 1),
    ];
    let others = vec![
        span(What::Submitted(work(1, 1), Box::new([(0, 1), (3, 9)])), 12, 1012),
        span(What::Ran(work(1, 1)), 31, 31),
        span(What::Here, 50, 60),
    ];
    let name = Some("a \"b\"\n\\".to_string());
    Trace {
        devices: vec![(source, "cpu".into())],
        threads: vec![Thread { name, spans }, Thread { name: None, spans: others }],
        late: Vec::new(),
        dropped_count: 3,
        untimed_count: 2,
    }
}

fn rendered(trace: &Trace) -> String {
    let mut text = Vec::new();
    render(trace, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_file_is_well_formed() {
    let _turn = crate::tests::turn();
    let text = rendered(&trace());
    assert_eq!(check(&text), Ok([5, 1, 3]), "{text}");
    assert!(text.contains(r#""args":{"name":"a \"b\"\u000a\\"}"#), "{text}");
    assert!(text.contains("\"ts\":0.012,\"dur\":1.000"), "{text}");
    assert!(
        text.starts_with("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":3,\"untimed\":2},"),
        "{text}"
    );
    assert_eq!(check(&rendered(&Trace::default())), Ok([0; 3]));
}

/// A link stays, whether there is something at its end or not.
#[test]
#[cfg(unix)]
fn a_file_is_written_through_links() {
    let _turn = crate::tests::turn();
    let folder = std::env::temp_dir().join(format!("raddle-{}-trace-file", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    std::fs::write(folder.join("inner/old"), "old").unwrap();
    for (link, target) in [("old", "inner/old"), ("new", "inner/new")] {
        std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
        for _ in 0..2 {
            write_whole(&folder.join(link), &trace()).unwrap();
            assert_eq!(std::fs::read_link(folder.join(link)).unwrap(), Path::new(target));
            assert_eq!(std::fs::read_to_string(folder.join(target)).unwrap(), rendered(&trace()));
        }
    }
    // What was kept from others stays so.
    use std::os::unix::fs::PermissionsExt;
    let old = folder.join("inner/old");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
    write_whole(&folder.join("old"), &trace()).unwrap();
    assert_eq!(std::fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.join("inner")).unwrap().count(), 2, "something is left over");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_what_ran_arrows_join_submissions() {
    let mut trace = trace();
    for thread in &mut trace.threads {
        thread.spans.retain(|span| !matches!(span.what, What::Ran(_)));
    }
    let _turn = crate::tests::turn();
    assert_eq!(check(&rendered(&trace)), Ok([3, 1, 3]));
}

/// On the tracks of streams, as if a thread had seen it run; of clocks that were fitted differently no arrow goes back.
#[test]
fn what_a_device_tells_late_is_shown_the_same() {
    let _turn = crate::tests::turn();
    let now = trace();
    let mut late = now.clone();
    for thread in &mut late.threads {
        let is_ran = |span: &mut Span| matches!(span.what, What::Ran(_));
        late.late.extend(thread.spans.extract_if(.., is_ran));
    }
    assert_eq!(check(&rendered(&late)), check(&rendered(&now)));
    let Some(first) = late.late.first_mut() else { panic!("it ran") };
    (first.start_ns, first.end_ns) = (28, 35); // what waits for it ran at 31
    assert_eq!(check(&rendered(&late)), Ok([5, 1, 3]));
    let Some(first) = late.late.first_mut() else { panic!("it ran") };
    (first.start_ns, first.end_ns) = (32, 35);
    assert_eq!(check(&rendered(&late)), Ok([5, 1, 3]), "it joins the submissions");
}

#[test]
fn fault_flow_without_producer() {
    let _turn = crate::tests::turn();
    let _planted = plant(Fault::flow_without_producer);
    let error = check(&rendered(&trace())).unwrap_err();
    assert!(error.starts_with("an arrow from nowhere"), "{error}");
}

#[test]
fn what_ran_is_shown_as_the_op_that_was_submitted() {
    let mut trace = trace();
    trace.threads[0].spans[2].name = "pointwise";
    assert!(!rendered(&trace).contains("pointwise"));
}

/// Other tests are recorded meanwhile, too.
#[test]
fn callbacks_are_shown_on_their_thread() {
    let _turn = crate::tests::turn();
    let (device, _oracle) = crate::tests::oracle::open(8);
    start();
    crate::Stream::default(&device).unwrap().on_complete(|_| ()).unwrap();
    assert_eq!(device.close(), Ok(true)); // which waits for it
    stop();
    let is_shown = |thread: &Thread| {
        let is_callback = |span: &Span| span.what == What::Here && span.name == "callback";
        thread.name.as_deref() == Some("raddle-callbacks") && thread.spans.iter().any(is_callback)
    };
    assert!(hal::snapshot().threads.iter().any(is_shown));
    let mut text = Vec::new();
    write_to(&mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("\"callback\""));
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_leaves_nothing() {
    let folder = std::env::temp_dir().join(format!("raddle-trace-{}", std::process::id()));
    let error = write(folder.join("none/trace.json")).unwrap_err().to_string();
    assert!(error.contains("none/trace.json: "), "{error}");
    std::fs::create_dir_all(folder.join("folder")).unwrap();
    assert!(write(folder.join("folder")).is_err());
    write(folder.join("trace.json")).unwrap();
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["folder", "trace.json"]);
    std::fs::remove_dir_all(folder).unwrap();
}
