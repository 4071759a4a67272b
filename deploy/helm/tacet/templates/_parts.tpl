{{- define "tacet.labels" -}}
app.kubernetes.io/name: tacet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tacet.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # Once only: a key file that a group may read is refused.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "tacet.container" -}}
image: {{ .Values.image | quote }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{- define "tacet.environment" -}}
- { name: TACET_KAFKA, value: {{ required "kafka.servers: must name the brokers" .Values.kafka.servers | quote }} }
- { name: TACET_LOG_JSON, value: "true" }
{{- range $name, $value := .Values.kafka.environment }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end -}}

{{- define "tacet.health" -}}
ports:
  - { name: metrics, containerPort: 9105 }
startupProbe:
  httpGet: { path: /startupz, port: metrics }
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: metrics }
  periodSeconds: 20
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 10
{{- end -}}


{{- define "tacet.kafkaEgress" -}}
# The cluster's names, and the brokers.
- ports:
    - { protocol: UDP, port: 53 }
    - { protocol: TCP, port: 53 }
- ports:
    {{- range .Values.networkPolicy.kafkaPorts }}
    - { protocol: TCP, port: {{ . }} }
    {{- end }}
  {{- with .Values.networkPolicy.brokers }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
