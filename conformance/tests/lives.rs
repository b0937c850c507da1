//! Processes that fork and end, on every device; where there is no GPU, its part is ignored.
fn main() -> std::process::ExitCode {
    raddle_conformance::lives::main()
}
