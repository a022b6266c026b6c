//! The measure of all: a handler that parses a small JSON body and answers JSON, in the server library that leadonce uses. It
//! runs in a process of its own, like the gateway.

use actix_web::{App, HttpServer, web};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Lead {
    name: String,
    phone: String,
}

#[derive(Serialize)]
struct Taken {
    status: &'static str,
    length: usize,
}

/// Serves until it is killed; tells its address as the gateway does.
pub(crate) fn serve() -> std::io::Result<()> {
    actix_web::rt::System::new().block_on(async {
        let server = HttpServer::new(|| App::new().route("/", web::post().to(take))).workers(2).bind("127.0.0.1:0")?;
        let address = server.addrs()[0];
        println!("listening on http://{address}");
        server.run().await
    })
}

async fn take(lead: web::Json<Lead>) -> web::Json<Taken> {
    web::Json(Taken { status: "received", length: lead.name.len() + lead.phone.len() })
}
