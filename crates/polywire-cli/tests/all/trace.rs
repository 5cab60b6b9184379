//! `--trace`: the spans of a command's nodes.

use crate::common::{Folder, report};

#[test]
fn spans_are_printed_as_the_filter_says() {
    let folder = Folder::new();
    let run = |filter: &str| {
        let wire = ["--wire", "json@unix/t.sock", "--trace", filter];
        let mut echo = folder.start(&[&["echo", "weather", "--count", "1", "-v"], &wire[..]].concat());
        echo.error_after("listening on ");
        let value = report(1);
        let arguments = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "1"];
        let publisher = folder.run(&[&arguments[..], &wire].concat()).with(0);
        (echo.end().with(0).errors, publisher.errors)
    };
    let (echo, publisher) = run("polywire=debug");
    assert!(echo.contains("negotiate{topic=weather wire=json writer="), "{echo}");
    assert!(!echo.contains("deliver{") && !publisher.contains("publish{"), "{echo}{publisher}");
    let (echo, publisher) = run("polywire[deliver]=trace,polywire[publish]=trace");
    assert!(echo.contains("deliver{topic=weather") && !echo.contains("negotiate{"), "{echo}");
    assert!(publisher.contains("publish{topic=weather wire=json@unix/t.sock"), "{publisher}");
    let wrong = folder.run(&["list", "--trace", "polywire=loud"]).with(3);
    assert!(wrong.errors.contains("error: --trace: error parsing level filter"), "{wrong:?}");
}
