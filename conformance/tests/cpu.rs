//! All suites on the CPU.
fn main() -> std::process::ExitCode {
    raddle_conformance::main(raddle_conformance::Backend::Cpu)
}
