//! The home of `examples/agents`, served by this process on a free port.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use docent::app::{App, Options};
use docent::config::ListenAddress;
use docent::transport::Lanes;

use super::Failed;

/// A server that runs until it is ended.
pub(crate) struct Served {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    app: Arc<App>,
    _home: tempfile::TempDir,
}

impl Served {
    /// Ends it and waits for its calls.
    pub(crate) async fn end(self) {
        self.app.close(Duration::from_secs(5)).await;
    }
}

/// Serves a copy of the home: its tool that publishes an agent has to know the address.
pub(crate) async fn home() -> Result<Served, Failed> {
    let home = tempfile::tempdir()?;
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agents"), home.path())?;
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let url = format!("http://{address}");
    std::fs::write(home.path().join("demo/url"), &url)?;
    let app = App::open(home.path(), Options::default()).await?;
    app.keep();
    let listener = app.bind(ListenAddress::parse(&address)?, None).await?;
    let serving = Arc::clone(&app);
    tokio::spawn(async move { serving.serve_http(listener, None, &Lanes::none()).await });
    Ok(Served { url, app, _home: home })
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
