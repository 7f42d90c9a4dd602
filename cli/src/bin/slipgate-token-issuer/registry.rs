//! Opens the registry of game servers.

use std::path::Path;
use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_os::key_file::read_secret_file;
use slipgate_token_issuer::registry::{FileRegistry, FileRegistryError, MemoryRegistry, RedisRegistry, Registry};

use crate::settings::RestartSettings;
use crate::values::RegistrySetting;

/// Opens the configured registry. That in Redis connects in the background, and again whenever the connection is lost.
pub(crate) fn open(settings: &RestartSettings) -> Result<Arc<dyn Registry>, Failure> {
    let url = match &settings.registry {
        RegistrySetting::Memory => return Ok(Arc::new(MemoryRegistry::default())),
        RegistrySetting::File(path) => {
            let registry = FileRegistry::open(path).map_err(|error| cannot_open(path, &error))?;
            return Ok(Arc::new(registry));
        }
        RegistrySetting::Redis(url) => url,
    };
    let password = settings.registry_password_file.as_deref().map(read_secret_file).transpose();
    let password = password.map_err(|error| Failure::usage(error.to_string()))?;
    let password = password.as_deref().map(|text| text.trim());
    let registry = RedisRegistry::new(url, password, &settings.registry_name);
    let registry = registry.map_err(|error| Failure::usage(error.to_string()))?;
    tokio::spawn(Arc::clone(&registry).keep_checking());
    Ok(registry)
}

/// Returns the error with the remedy.
fn cannot_open(path: &Path, error: &FileRegistryError) -> Failure {
    let remedy = match error {
        FileRegistryError::InUse => "give each issuer a FILE of its own, or one registry in Redis to all",
        FileRegistryError::NotARegistry(_) => {
            "give --registry a FILE that an issuer has made, or that does not exist yet; move a damaged registry away"
        }
        // Most containers have no folder that the issuer can write.
        _ => {
            "give --registry FILE in a folder that the issuer can write, or --registry memory, which forgets at a \
             restart which slots are reserved"
        }
    };
    Failure::run_time(format!("{}: {error}; {remedy}", path.display()))
}
