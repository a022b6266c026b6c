//! The document at `/openapi.json` is true: a public fuzzing tool reads it, asks for everything in it, and finds no 5xx that is not
//! ours, no status that is not written, and no answer off its schema.

#[path = "support/gateway.rs"]
mod gateway;

use std::process::{Command, Stdio};

use gateway::{Gateway, Setup, lead};
use serde_json::json;

/// Schemathesis (PyPI), in the path. `.ci/run` installs it.
fn tool() -> Option<Command> {
    let mut command = Command::new("schemathesis");
    let there =
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if there {
        return Some(Command::new("schemathesis"));
    }
    assert!(!strict(), "schemathesis is missing (PyPI: schemathesis)");
    eprintln!("SKIPPED: schemathesis was not found, so the API's document was not checked (PyPI: schemathesis)");
    None
}

/// Whether a skip is a failure.
#[expect(clippy::disallowed_methods, reason = "how the tests are run")]
fn strict() -> bool {
    std::env::var("LEADONCE_TEST_STRICT").is_ok_and(|value| value == "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_about_the_api_is_true() {
    let Some(mut tool) = tool() else { return };
    let gateway = Gateway::start(Setup::default()).await;
    // Something of every kind to be found.
    gateway.deliver("k1", &lead("Anna"), 5).await;
    gateway.deliver("k1", &lead("Boris"), 0).await;
    gateway.faults(json!([{"call": "create", "kind": "validation_error"}]));
    gateway.deliver("k2", &lead("Clara"), 5).await;
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool
        .current_dir(folder.path())
        .arg("run")
        .arg(format!("{}/openapi.json", gateway.url))
        .args(["--url", &gateway.url])
        .args(["--header", &format!("Authorization: Bearer {}", gateway.token)])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--seed", "1", "--no-color"])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--checks", "unsupported_method,allow_header_conformance"])
        .args(["--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "30"])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    // It looked at every operation of the document.
    let written = gateway.get("/openapi.json").await.body;
    let operations: usize =
        written["paths"].as_object().expect("paths").values().map(|p| p.as_object().map_or(0, |p| p.len())).sum();
    assert!(operations >= 24 && told.contains(&operations.to_string()), "{operations} operations\n{told}");
    gateway.end().await;
}
