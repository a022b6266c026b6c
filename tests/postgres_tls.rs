//! TLS to PostgreSQL, against a real server that demands it; only where the program was built with `postgres-tls`.

#[path = "support/postgres.rs"]
mod postgres;

use leadonce::store::{Settings, Store, StoreError, Use};

/// A certificate authority, and a certificate of the server for one name, made by the openssl command.
fn certificates(name: &str) -> String {
    format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj '/CN=test authority' \
            -keyout ca.key -out ca.crt &&
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=server' \
            -keyout server.key -out server.csr &&
         printf 'subjectAltName={name}\\n' >server.ext &&
         openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile server.ext \
            -out server.crt && chmod 600 server.key && cp server.crt server.key data/ &&
         echo 'hostssl all all 127.0.0.1/32 trust' >data/pg_hba.conf"
    )
}

/// A server that takes nobody without TLS, and the file of its authority.
fn server(name: &str) -> Option<(postgres::Own, String)> {
    if !cfg!(feature = "postgres-tls") {
        use std::io::Write;
        let strict = std::env::var_os("LEADONCE_TEST_STRICT").is_some_and(|value| value == "1");
        assert!(!strict, "built without postgres-tls, and LEADONCE_TEST_STRICT=1");
        // Straight to the stream: the test harness would swallow what is printed.
        let _ = std::io::stderr().write_all(b"SKIPPED: built without --features postgres-tls, TLS was not tested\n");
        return None;
    }
    let options = ["ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key"];
    let mut server = postgres::Own::start(&certificates(name), &options)?;
    let authority = server.file("ca.crt");
    // The server's folder is its user's alone.
    let authority = authority.to_str().expect("text").to_owned();
    Some((server, authority))
}

fn open(url: String) -> Result<(), StoreError> {
    Store::open(&Settings { url, queue: 16, batch: 4, readers: 4 }, Use::Serve).map(drop)
}

#[test]
fn require_speaks_tls_and_nothing_else_is_taken() {
    let Some((server, _)) = server("IP:127.0.0.1") else { return };
    open(format!("{}?sslmode=require", server.url())).expect("it speaks TLS");
    let refused = open(format!("{}?sslmode=disable", server.url()));
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}

#[test]
fn verify_full_takes_the_right_name_and_authority_alone() {
    let Some((server, authority)) = server("IP:127.0.0.1,DNS:localhost") else { return };
    let url = |host: &str, authority: &str| {
        let url = server.url().replace("127.0.0.1", host);
        format!("{url}?sslmode=verify-full&sslrootcert={authority}&hostaddr=127.0.0.1")
    };
    open(url("127.0.0.1", &authority)).expect("the name of the certificate");
    open(url("localhost", &authority)).expect("its other name");
    let Err(StoreError::Unavailable(text)) = open(url("leads.example", &authority)) else { panic!("a wrong name") };
    assert!(text.contains("leads.example"), "{text}");
    let other = authority.replace("ca.crt", "data/server.crt");
    assert!(matches!(open(url("127.0.0.1", &other)), Err(StoreError::Unavailable(_))), "a wrong authority");
}

#[test]
fn without_tls_in_the_program_a_url_that_demands_it_says_what_to_do() {
    if cfg!(feature = "postgres-tls") {
        return;
    }
    let refused = open("postgres://user:secret@127.0.0.1:1/db?sslmode=verify-full".into());
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("postgres-tls") && !text.contains("secret"), "{text}");
}
