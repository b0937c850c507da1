//! The program as others call it: the names in its JSON, its exit codes, the first line of its errors.

mod shared;

use serde_json::{Value, json};
use shared::{assert_refused, form::assert_form, raddle, raddle_to};

/// What a command writes with `--json -`: JSON and nothing else.
fn report(arguments: &[&str]) -> Value {
    let output = raddle(&[arguments, &["--json", "-"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn demo_reports_what_it_promises() {
    let demo = |threads| report(&["demo", "--steps", "4", "--seed", "3", "--threads", threads]);
    let (one, four) = (demo("1"), demo("4"));
    let form = json!({
        "device": "", "seed": 0, "steps": 0, "threads": 0, "loss_first": 0.5, "loss_last": 0.5,
        "explained_variance": 0.5, "inferences": 0, "inferences_per_s": 0.5, "wrong_answers": 0,
        "params": [{ "name": "", "shape": [0], "strides": [0], "moved": 0.5 }],
        "waits": { "inserted": 0, "elided": 0 },
        "memory": { "allocated_peak": 0, "reserved_peak": 0 },
        "live": { "answers": 0, "wrong": 0 },
        "late": {
            "device": "", "steps": 0, "threads": 0, "waits": { "inserted": 0, "elided": 0 },
            "published": { "answers": 0, "wrong": 0 }, "live": { "answers": 0, "wrong": 0 },
        },
        "seconds": 0.5,
    });
    assert_form(&four, &form, "demo");
    assert_eq!(four["wrong_answers"], 0);
    for live in [&four["live"], &four["late"]["live"]] {
        assert!(live["answers"].as_u64() > Some(0) && live["wrong"] == 0, "{live}");
    }
    assert!(four["late"]["waits"]["inserted"].as_u64() > Some(0), "{}", four["late"]);
    assert_eq!(four["steps"], 4);
    let params = four["params"].as_array().unwrap();
    let named = |name: &str| params.iter().find(|param| param["name"] == name).unwrap();
    assert_eq!(named("encoder.weight")["shape"], json!([256, 64]));
    assert_eq!(named("encoder.weight")["strides"], json!([1, 256]));
    assert_eq!(named("decoder.weight")["shape"], json!([64, 256]));
    for name in ["encoder.weight", "decoder.weight", "encoder.bias", "decoder.bias"] {
        assert!(named(name)["moved"].as_f64().unwrap() > 0.0, "{name} is frozen");
    }
    for loss in ["loss_first", "loss_last"] {
        assert_eq!(one[loss], four[loss], "{loss} depends on the number of threads");
    }
}

#[test]
fn demo_writes_one_file_to_standard_output() {
    let demo = ["demo", "--steps", "2", "--threads", "1"];
    let output = raddle(&[&demo[..], &["--trace", "-"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: Value = serde_json::from_slice(&output.stdout).expect("a trace and nothing else");
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    let picture = raddle(&[&demo[..], &["--memory", "-"]].concat()).stdout;
    assert!(picture.starts_with(b"<!") && picture.trim_ascii_end().ends_with(b"</html>"));
    assert_refused(&[&demo[..], &["--trace", "-", "--json", "-"]].concat(), "expected - for one of");
}

#[test]
fn bench_reports_what_it_promises() {
    let row = json!({ "name": "", "threads": 0, "unit": "", "median": 0.5, "min": 0.5, "max": 0.5 });
    let form = json!({ "machine": "", "device": "", "commit": "", "rows": [row] });
    let bench = report(&["bench", "--only", "add_out_256"]);
    assert_form(&bench, &form, "bench");
    assert_eq!(bench["rows"][0]["name"], "add_out_256");
    let list = report(&["bench", "--list"]);
    assert_form(&list, &json!({ "names": [""] }), "bench --list");
    let names: Vec<_> = list["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(String::from_utf8(raddle(&["bench", "--list"]).stdout).unwrap(), names.join("\n") + "\n");
}

/// Where JSON goes to standard output no name is needed, whatever follows.
#[test]
fn json_without_a_name_is_for_standard_output() {
    for arguments in [&["ops", "--json"][..], &["limits", "--json"], &["bench", "--json", "--list"]] {
        let output = raddle(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{arguments:?}");
    }
}

/// A folder that isn't there is told before anything is measured: an unknown device would be told when one is opened.
#[test]
fn reports_with_nowhere_to_go_are_told_first() {
    for command in [&["bench", "--device", "gpu"][..], &["ops"], &["limits"], &["doctor"]] {
        let output = raddle(&[command, &["--json", "/nowhere/report.json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{command:?}");
        assert_eq!(stderr, "raddle: /nowhere/report.json: the folder doesn't exist\n", "{command:?}");
    }
}

#[test]
fn no_command_is_told_before_the_help() {
    assert_refused(&[], "expected a command, found none");
}

#[test]
fn ops_reports_what_it_promises() {
    let op = json!({
        "name": "", "kind": "", "dtypes": [""], "backends": [""],
        "gradient": true, "in_place": true, "out": true,
    });
    let ops = report(&["ops"]);
    let ops = ops["ops"].as_array().unwrap();
    for found in ops {
        assert_eq!(found.as_object().unwrap().len(), 7);
        for (name, like) in op.as_object().unwrap() {
            // A bool is of one type with another, whatever it says.
            match like {
                Value::Bool(_) => assert!(found[name].is_boolean(), "{name} of {found}"),
                like => assert_form(&found[name], like, name),
            }
        }
        assert!(["pointwise", "structured", "view"].contains(&found["kind"].as_str().unwrap()));
    }
    let add = ops.iter().find(|op| op["name"] == "add").unwrap();
    assert_eq!((&add["kind"], &add["gradient"]), (&json!("pointwise"), &json!(true)));
}

#[test]
fn wrong_use_and_input_are_refused() {
    let own = "expected a file of its own, found that of ";
    assert_refused(&["memory", "/memory.json", "--html", "/memory.json"], own);
    assert_refused(&["demo", "--device", "gpu"], "expected one of: cpu");
    assert_refused(&["demo", "--data", "/nowhere/digits.csv.gz"], "/nowhere/digits.csv.gz");
    assert_refused(&["demo", "--steps", "0"], "--steps");
    assert_refused(&["bench", "--only", "add_out_257"], "add_out_257");
    assert_refused(&["bench", "--colour"], "--colour");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told() {
    assert_refused(&["ops", "--json", "/dev/full"], "/dev/full");
    assert_refused(&["ops", "--json", "/nowhere/ops.json"], "/nowhere/ops.json");
}

/// Standard output that can't be written is told in one line; one that nobody reads isn't, and files are written all the same.
#[test]
#[cfg(target_os = "linux")]
fn standard_output_that_fails_is_no_panic() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let unread = || std::io::pipe().unwrap().1;
    let path = std::env::temp_dir().join(format!("raddle-{}-unread.json", std::process::id()));
    let file = path.to_str().unwrap();
    for arguments in [&["ops"][..], &["ops", "--json", "-"], &["bench", "--list"], &["limits"]] {
        let output = raddle_to(full().into(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("raddle: standard output: ") && stderr.lines().count() == 1, "{stderr}");
        let output = raddle_to(unread().into(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{arguments:?}");
    }
    for command in [&["demo", "--steps", "2", "--threads", "1", "--json"][..], &["limits", "--json"]] {
        for (stdout, code) in [(full().into(), 2), (unread().into(), 0)] {
            let output = raddle_to(stdout, &[command, &[file]].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{command:?}: {stderr}");
            let text = std::fs::read_to_string(&path).expect("the report");
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{command:?}: {text}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn standard_error_that_fails_changes_no_exit_code() {
    let to_full = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_raddle"));
        command.args(arguments).stderr(full).env("RADDLE_MISSPELT", "1").output().unwrap()
    };
    assert_eq!(to_full(&["demo", "--device", "gpu"]).status.code(), Some(2));
    let limits = to_full(&["limits", "--json"]);
    assert_eq!(limits.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&limits.stdout).unwrap();
    assert_eq!(report["unknown_variables"], json!(["RADDLE_MISSPELT"]));
}

/// Their stacks alone have more addresses than the process may have.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_do_not_start_are_an_error() {
    let mut shell = std::process::Command::new("sh");
    let demo = "ulimit -v 1200000 && exec \"$0\" demo --steps 2 --threads 1024";
    shell.args(["-c", demo, env!("CARGO_BIN_EXE_raddle")]);
    let output = shell.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("raddle: demo: expected 1024 threads, started "), "{stderr}");
}

/// A report goes where a link points, and into what is no file; neither is replaced.
#[test]
#[cfg(target_os = "linux")]
fn reports_go_through_links() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("raddle-{}-links", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let path = |name: &str| folder.join(name);
    let write = |to: &std::path::Path| raddle(&["limits", "--json", to.to_str().unwrap()]);
    let is_report =
        |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value["limits"].is_array());
    std::fs::write(path("inner/old.json"), "old").unwrap();
    for (link, target, at) in [
        ("link", "inner/old.json", "inner/old.json"),
        ("second", "link", "inner/old.json"),
        ("new", "inner/new.json", "inner/new.json"),
    ] {
        std::os::unix::fs::symlink(target, path(link)).unwrap();
        let output = write(&path(link));
        assert!(output.status.success(), "{link}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read_link(path(link)).unwrap(), std::path::Path::new(target));
        assert!(is_report(&std::fs::read_to_string(path(at)).unwrap()), "{link}");
        std::fs::write(path(at), "old").unwrap();
    }
    // What was kept from others stays so.
    let old = path("inner/old.json");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(write(&path("link")).status.success());
    assert_eq!(std::fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
    let names = |folder: &std::path::Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!((names(&folder), names(&path("inner"))), (4, 2), "something is left over");
    for name in ["/dev/stdout", "/proc/self/fd/1"] {
        let file = std::fs::File::create(path("out")).unwrap();
        assert!(raddle_to(file.into(), &["limits", "--json", name]).status.success(), "{name}");
        assert!(is_report(&std::fs::read_to_string(path("out")).unwrap()), "{name}: more than the report");
        assert!(is_report(&String::from_utf8_lossy(&write(name.as_ref()).stdout)), "{name}");
    }
    std::os::unix::fs::symlink("loop", path("loop")).unwrap();
    assert_refused(&["limits", "--json", path("loop").to_str().unwrap()], "symbolic links");
    std::os::unix::fs::symlink("none/file", path("lost")).unwrap();
    assert_refused(&["limits", "--json", path("lost").to_str().unwrap()], "the folder doesn't exist");
    std::fs::remove_dir_all(folder).unwrap();
}

/// As reports do.
#[test]
fn traces_go_through_links() {
    let folder = std::env::temp_dir().join(format!("raddle-{}-trace-links", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_string();
    std::fs::write(path("inner/old.json"), "old").unwrap();
    for (link, target) in [("old", "inner/old.json"), ("new", "inner/new.json")] {
        std::os::unix::fs::symlink(target, path(link)).unwrap();
        let output = raddle(&["demo", "--threads", "1", "--steps", "1", "--trace", &path(link)]);
        assert!(output.status.success(), "{link}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read_link(path(link)).unwrap(), std::path::Path::new(target));
        let text = std::fs::read_to_string(path(target)).unwrap();
        assert!(serde_json::from_str::<Value>(&text).unwrap()["traceEvents"].is_array(), "{link}");
    }
    let names = |folder: &str| std::fs::read_dir(path(folder)).unwrap().count();
    assert_eq!((names(""), names("inner")), (3, 2), "something is left over");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_command_has_an_example() {
    for arguments in [
        &["demo", "--help"][..],
        &["bench", "--help"],
        &["ops", "--help"],
        &["memory", "--help"],
        &["limits", "--help"],
        &["doctor", "--help"],
        &["--help"],
    ] {
        let output = raddle(arguments);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example: raddle "), "{arguments:?}");
    }
    for arguments in [&["--version"][..], &["demo", "--version"], &["ops", "--version"]] {
        let output = raddle(arguments);
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("raddle"), "{arguments:?}");
    }
}

#[test]
#[cfg(not(feature = "serve"))]
fn commands_of_another_build_say_how_to_get_them() {
    for command in ["embed", "serve"] {
        assert_refused(&[command, "--model", "a"], "expected a program built with the feature `serve`");
        assert_refused(&[command, "--help"], "--features serve");
    }
}
