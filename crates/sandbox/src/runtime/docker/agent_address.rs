//! Address that the guest agent of a container connects to: the server's port, if its network leads there.

use std::net::IpAddr;

use bollard::models::NetworkInspect;
use bollard::query_parameters::InspectNetworkOptions;
use ipnet::IpNet;
use tokio::net::lookup_host;
use workspace_agent_protocol::start_parameters::StartParameters;

use super::Docker;
use crate::runtime::{RuntimeError, SandboxSpec};

impl Docker {
    /// Returns the start parameters of a guest agent that connects over TCP, with the addresses of the server;
    /// `None` for an agent that uses its Unix socket, because it has no network or the server no port.
    pub(super) async fn tcp_agent_parameters(
        &self,
        spec: &SandboxSpec<'_>,
        network: &str,
    ) -> Result<Option<StartParameters>, RuntimeError> {
        let Some(endpoint) = spec.endpoint.filter(|_| spec.egress.is_some()) else { return Ok(None) };
        let (name, port) = match &endpoint.advertised {
            Some(advertised) => advertised.clone(),
            None => (self.gateway(network).await?.to_string(), endpoint.port),
        };
        let resolved = lookup_host((name.as_str(), port)).await.map_err(|error| {
            let message = format!(
                "`{name}`, which GRPC_ADVERTISE tells guest agents to dial, cannot be resolved: {error}"
            );
            RuntimeError::Network(message)
        })?;
        let addresses = resolved.map(|address| address.to_string()).collect();
        let (token, trusted_certificates) = (spec.token.to_vec(), endpoint.trusted.clone());
        Ok(Some(StartParameters { token, addresses, server_name: name, trusted_certificates }))
    }

    /// Returns the address of this host in a network.
    async fn gateway(&self, network: &str) -> Result<IpAddr, RuntimeError> {
        let found = self.client.inspect_network(network, None::<InspectNetworkOptions>).await;
        let reason = match found.as_ref().map(gateway_of) {
            Ok(Some(gateway)) => return Ok(gateway),
            Ok(None) => "it has no gateway".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(RuntimeError::Network(format!(
            "the network `{network}` (DOCKER_NETWORK) does not tell by which address guest agents reach the server: \
             {reason}; GRPC_ADVERTISE says it"
        )))
    }
}

fn gateway_of(network: &NetworkInspect) -> Option<IpAddr> {
    let configs = network.ipam.as_ref()?.config.as_deref()?;
    let gateways = configs.iter().filter_map(|config| {
        let text = config.gateway.as_deref()?;
        // Some daemons append the prefix length of the network.
        text.parse().or_else(|_| text.parse::<IpNet>().map(|network| network.addr())).ok()
    });
    let gateways: Vec<IpAddr> = gateways.collect();
    gateways.iter().find(|gateway| gateway.is_ipv4()).or(gateways.first()).copied()
}

#[cfg(test)]
mod tests {
    use bollard::models::{Ipam, IpamConfig};

    use super::*;

    #[test]
    fn ipv4_gateway_of_a_network_is_preferred() {
        let network = |gateways: &[&str]| {
            let config =
                |gateway: &&str| IpamConfig { gateway: Some((*gateway).to_owned()), ..IpamConfig::default() };
            let config = Some(gateways.iter().map(config).collect());
            NetworkInspect { ipam: Some(Ipam { config, ..Ipam::default() }), ..NetworkInspect::default() }
        };
        let found = |gateways: &[&str]| gateway_of(&network(gateways)).map(|it| it.to_string());
        assert_eq!(found(&["fd00::1", "172.18.0.1"]).as_deref(), Some("172.18.0.1"));
        assert_eq!(found(&["fd00::1/64"]).as_deref(), Some("fd00::1"));
        assert_eq!(found(&[""]), None);
        assert_eq!(gateway_of(&NetworkInspect::default()), None);
    }
}
